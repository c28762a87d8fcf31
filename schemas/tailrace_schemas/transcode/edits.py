"""Edit records of multi-cell columns, and records of `raw`: bytes that their Avro value would not give back."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from tailrace_schemas.transcode.plans import LIST, SET, UDT, ColumnPlan
from tailrace_schemas.transcode.primitives import write_long, write_span, write_text
from tailrace_schemas.transcode.row import NONE, NULL, RowCells
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


def put_edit(
    out: BytesWriter,
    cells: RowCells,
    data: bytes,
    column: ColumnPlan,
    column_index: i64,
    first: i64,
    raw_values: RawValues,
) -> None:
    """What was done to a multi-cell column: deleted_at, set, removed; null where nothing was."""
    deleted_at: i64 = NONE
    deleted = False
    deletion: i64 = 0
    while deletion < cells.deletions:
        if cells.deletion_column[deletion] == column_index:
            deleted_at = cells.deletion_written[deletion]
            deleted = True
        deletion += 1
    if first < 0 and not deleted:
        out.append(u8(ABSENT))
        return
    out.append(u8(PRESENT))
    if deleted:
        out.append(u8(PRESENT))
        write_long(out, deleted_at)
    else:
        out.append(u8(ABSENT))
    if column.form == UDT:
        _put_fields(out, cells, data, column, column_index, first, raw_values)
        return
    _put_elements(out, cells, data, column, column_index, first, raw_values, True)
    _put_elements(out, cells, data, column, column_index, first, raw_values, False)


def _put_elements(
    out: BytesWriter,
    cells: RowCells,
    data: bytes,
    column: ColumnPlan,
    column_index: i64,
    first: i64,
    raw_values: RawValues,
    live: bool,
) -> None:
    """The elements that were set, or those that were removed, as an Avro array."""
    count = _count(cells, column_index, first, live)
    if count:
        write_long(out, count)
    cell = first
    while count:
        if (cells.start[cell] != NULL) == live:
            _put_element(out, cells, data, column, cell, raw_values)
            count -= 1
        cell += 1
    write_long(out, 0)


def _put_element(
    out: BytesWriter, cells: RowCells, data: bytes, column: ColumnPlan, cell: i64, raw_values: RawValues
) -> None:
    start, end = cells.path_start[cell], cells.path_end[cell]
    write_span(out, data, start, end)
    if column.form != LIST:
        column.key.write(out, data, start, end)
    start, end = cells.start[cell], cells.end[cell]
    if start == NULL:
        return
    if column.form == SET:
        if end > start:
            raw_values.add_cell(column, cell, cells, data, VALUE)
    elif not column.value.write(out, data, start, end):
        raw_values.add_cell(column, cell, cells, data, VALUE)


def _put_fields(
    out: BytesWriter,
    cells: RowCells,
    data: bytes,
    column: ColumnPlan,
    column_index: i64,
    first: i64,
    raw_values: RawValues,
) -> None:
    """The fields of a user type that were set, and the names of those that were removed."""
    field_count = len(column.fields)
    for field_index in range(field_count):
        cell = _field_cell(cells, data, column_index, first, field_index)
        if cell < 0 or cells.start[cell] == NULL:
            out.append(u8(ABSENT))
        elif not column.fields[field_index].write(out, data, cells.start[cell], cells.end[cell]):
            raw_values.add_cell(column, cell, cells, data, VALUE)
    removed: list[bytes] = []
    cell = first
    while cell >= 0 and cell < cells.count and cells.column[cell] == column_index:
        field_index = _field_number(cells, data, cell)
        if field_index < 0 or field_index >= field_count:
            # A field that this definition does not know: its bytes, or of a tombstone its path, stay as they are.
            raw_values.add_cell(column, cell, cells, data, KEY if cells.start[cell] == NULL else VALUE)
        elif cells.start[cell] == NULL:
            removed.append(column.field_texts[field_index])
        cell += 1
    if removed:
        write_long(out, len(removed))
        for text in removed:
            write_text(out, text)
    write_long(out, 0)


def _count(cells: RowCells, column_index: i64, first: i64, live: bool) -> i64:
    """The live cells of a column, or its tombstones."""
    count: i64 = 0
    cell = first
    while cell >= 0 and cell < cells.count and cells.column[cell] == column_index:
        if (cells.start[cell] != NULL) == live:
            count += 1
        cell += 1
    return count


def _field_number(cells: RowCells, data: bytes, cell: i64) -> i64:
    """The number of the user type's field that a cell is of; -1 for a path that is none."""
    start = cells.path_start[cell]
    if cells.path_end[cell] - start != 2:
        return -1
    return i64(data[start]) << 8 | i64(data[start + 1])


def _field_cell(cells: RowCells, data: bytes, column_index: i64, first: i64, number: i64) -> i64:
    """The cell of a user type's field, of which there is one at most; -1 where there is none."""
    cell = first
    while cell >= 0 and cell < cells.count and cells.column[cell] == column_index:
        if _field_number(cells, data, cell) == number:
            return cell
        cell += 1
    return -1
