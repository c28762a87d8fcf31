"""Pages as the native protocol writes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tailrace_spark.snapshot.page import PageColumns

Row = Sequence[bytes | None]


def page_of(rows: Sequence[Row]) -> bytes:
    """The bytes of rows, which have one width."""
    values = [
        struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
        for row in rows
        for value in row
    ]
    return struct.pack(">i", len(rows)) + b"".join(values)


def columns_page(columns: Sequence[Row]) -> PageColumns:
    """The page that has these columns."""
    return PageColumns(page_of(list(zip(*columns, strict=True))), len(columns))
