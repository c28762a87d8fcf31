"""A table, and rows of it as a mutation has them."""

from __future__ import annotations

from tailrace.commitlog.model import Row
from tailrace_schemas.change import (
    Cell,
    Deletion,
    Marker,
    Source,
)
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tests.unit.tables import table

TABLE = table({"pk": "int"}, {"ck": "text"}, {"s": "text"}, {"v": "text", "w": "bigint", "m": "map<text, int>"})
SOURCE = Source(host="h", datacenter="dc", position=Position(1, 7, 100), index=0, count=0, seen=5)
KEY = b"\x00\x00\x00\x01"


def cell(name: str, written: int, value: bytes | None = b"x", path: bytes | None = None, of: Table = TABLE) -> Cell:
    found = next(c for c in of.columns if c.name == name)
    return Cell(found, path, written, None, 9 if value is None else None, value)


def row(ck: str, *cells: Cell, marker: int | None = None, deleted: int | None = None) -> Row:
    return Row(
        clustering=(ck.encode(),),
        marker=None if marker is None else Marker(marker),
        deletion=None if deleted is None else Deletion(deleted, 9),
        cells=cells,
    )
