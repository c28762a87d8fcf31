"""Bytes that their Avro value would not give back: the records of `raw`, as they are met."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from tailrace_schemas.transcode.plans import ColumnPlan
from tailrace_schemas.transcode.primitives import write_long, write_text
from tailrace_schemas.transcode.row import NULL, RowCells
from tailrace_schemas.transcode.values import ABSENT, PRESENT

# The symbols of Where in the schema.
VALUE: Final = 0
KEY: Final = 1
START: Final = 2
END: Final = 3


def raw_record(name: bytes, path: bytes | None, where: i64, data: bytes) -> bytes:
    """One record of `raw`: column, path, where, bytes."""
    out = BytesWriter()
    write_text(out, name)
    if path is None:
        out.append(u8(ABSENT))
    else:
        out.append(u8(PRESENT))
        write_text(out, path)
    write_long(out, where)
    write_text(out, data)
    return out.getvalue()


class RawValues:
    """The records of one change, each with the index among the cells that gives the order."""

    def __init__(self) -> None:
        self._records: list[tuple[int, bytes]] = []

    def clear(self) -> None:
        """Begin with the next change."""
        self._records.clear()

    def add_key(self, index: i64, name: bytes, where: i64, data: bytes) -> None:
        """Keep the bytes of a key column."""
        self._records.append((index, raw_record(name, None, where, data)))

    def add_cell(self, column: ColumnPlan, cell: i64, cells: RowCells, data: bytes, where: i64) -> None:
        """Keep the bytes of a cell, or its path's, that the Avro value would not give back."""
        path = None if cells.path_start[cell] == NULL else data[cells.path_start[cell] : cells.path_end[cell]]
        value = data[cells.start[cell] : cells.end[cell]] if cells.start[cell] != NULL else b""
        value_bytes = path if path is not None and where == KEY else value
        self._records.append((cell, raw_record(column.text, path, where, value_bytes)))

    def put(self, out: BytesWriter, of_partition: list[bytes]) -> None:
        """Append the field `raw`: the records of the partition key, then the others in the order of the log."""
        records = self._records
        count = len(records) + len(of_partition)
        if not count:
            out.append(u8(ABSENT))
            return
        out.append(u8(PRESENT))
        write_long(out, count)
        for record in of_partition:
            out.write(record)
        for _, record in sorted(records, key=_index):
            out.write(record)
        write_long(out, 0)


def _index(record: tuple[int, bytes]) -> int:
    return record[0]
