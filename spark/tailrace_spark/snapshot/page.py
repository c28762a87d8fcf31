"""The rows of a page as the native protocol has them, and taken apart into columns of Cassandra's bytes.

It is all that is computed for each value that is read, so it is compiled.
"""

from __future__ import annotations

from typing import NamedTuple

from librt.strings import BytesWriter, read_i32_be, read_i32_le, write_i32_le
from mypy_extensions import i64

from tailrace_schemas.errors import CorruptError, TruncatedError


def row_count(data: bytes) -> int:
    """How many rows a page says to have. Raises TruncatedError."""
    if len(data) < 4:
        raise TruncatedError("a page of rows has 4 bytes or more")
    return read_i32_be(data, 0)


def read_lengths(data: bytes, columns: int) -> bytes:
    """The length of each value, row by row, as i32 in little endian; a negative one is null.

    `data` is `i32 rows`, then for each row and column `i32 length, bytes` (native protocol 4 and 5, 4.2.5.2 "Rows").
    So values are found without an object for each. Raises TruncatedError where the bytes end too early, CorruptError
    where they go on.
    """
    size: i64 = len(data)
    rows = i64(row_count(data))
    values = rows * columns
    if rows < 0 or values * 4 > size - 4:
        raise TruncatedError(f"a page of {rows} rows in {size} bytes")
    lengths = BytesWriter()
    offset: i64 = 4
    while values > 0:
        start: i64 = offset + 4
        if start > size:
            raise TruncatedError("a value's length is cut", offset=offset)
        length = read_i32_be(data, offset)
        write_i32_le(lengths, length)
        offset = start
        if length > 0:
            offset += i64(length)
        values -= 1
    if offset > size:
        raise TruncatedError("the last value is cut", offset=size)
    if offset != size:
        raise CorruptError(f"{size - offset} bytes after the rows of a page", offset=offset)
    return lengths.getvalue()


def read_columns(data: bytes, columns: int) -> list[list[bytes | None]]:
    """The values, column by column. `data` and errors as `read_lengths` has them."""
    lengths = read_lengths(data, columns)
    parsed: list[list[bytes | None]] = [[] for _ in range(columns)]
    size: i64 = len(lengths)
    index: i64 = 0
    offset: i64 = 4
    while index < size:
        for values in parsed:
            length = i64(read_i32_le(lengths, index))
            index += 4
            offset += 4
            if length < 0:
                values.append(None)
                continue
            start = offset
            offset += length
            values.append(data[start:offset])
    return parsed


class PageColumns(NamedTuple):
    """The bytes of a page, as `read_lengths` takes them apart, and how many columns its rows have."""

    data: bytes
    width: int
