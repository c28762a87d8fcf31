"""A row, a deletion or a range to the framed Avro record of its change, up to the source, which the caller appends.

One definition with `avro.encode` and `digest`: both say the same of every change, byte for byte, and the tests compare
them. Here a change never becomes an object.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from librt.vecs import vec
from mypy_extensions import i64, mypyc_attr, u8

from tailrace_schemas.avro.encode import Encoder
from tailrace_schemas.avro.frames import FRAME
from tailrace_schemas.change import EXPIRED_TTL, OPS, Bound, Deletion, Op
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.table import Column, Table
from tailrace_schemas.tokens import token
from tailrace_schemas.transcode.digest import Digest
from tailrace_schemas.transcode.edits import END, KEY, START, VALUE, RawValues, put_edit, raw_record
from tailrace_schemas.transcode.plans import SIMPLE, ColumnPlan, RowPlan
from tailrace_schemas.transcode.primitives import write_long, write_span, write_text
from tailrace_schemas.transcode.row import NONE, NULL, RowCells
from tailrace_schemas.transcode.values import ABSENT, PRESENT, writer_of

INSERT: Final = OPS.index(Op.INSERT)
UPDATE: Final = OPS.index(Op.UPDATE)
DELETE: Final = OPS.index(Op.DELETE)
DELETE_PARTITION: Final = OPS.index(Op.DELETE_PARTITION)
DELETE_RANGE: Final = OPS.index(Op.DELETE_RANGE)
LOGGED: Final = -1
"""The op that a row's own data say."""

_NO_RECORDS: Final[list[bytes]] = []


@mypyc_attr(acyclic=True)
class Partition:
    """What all changes of one partition share: key as the log has it, token, framed Kafka key, Avro key fields."""

    def __init__(self, key: bytes, token: int, message_key: bytes, fields: bytes, raw: list[bytes]) -> None:
        self.key = key
        self.token: i64 = token
        self.message_key = message_key
        self.fields = fields
        self.raw = raw


class RecordWriter:
    """Writes the records of one table shape, framed by `encoder`'s schema ids, in its forms. Not for several threads at
    once."""

    def __init__(self, table: Table, encoder: Encoder) -> None:
        self.table = table
        self._table_id = table.id.bytes
        self._head = FRAME + encoder.schema_id
        self._key_head = FRAME + encoder.key_schema_id
        self._key_types = tuple(column.type for column in table.partition_key)
        self._forms = encoder.forms
        self._key_writers = [writer_of(column.type, encoder.forms) for column in table.partition_key]
        self._clustering_writers = [writer_of(column.type, encoder.forms) for column in table.clustering]
        self._out = BytesWriter()
        self._digest = Digest()
        self._first = vec[i64]([-1] * 64)
        self._raw_values = RawValues()
        self.newest: i64 = 0
        # Of the record that was written last.
        self.written: i64 = 0
        self.ttl: i64 = NONE
        self.expires: i64 = NONE
        self.digest = b""

    def plan(self, columns: tuple[Column, ...]) -> RowPlan:
        """The plan for a header's columns; the caller keeps it."""
        return RowPlan(self.table, columns, self._forms)

    def partition(self, key: bytes) -> Partition:
        """What the changes of a partition share. Raises TruncatedError, CorruptError for what is no such key."""
        out = self._out
        out.truncate(0)
        raw = _NO_RECORDS
        if len(self._key_writers) == 1:
            if not self._key_writers[0].write(out, key, 0, len(key)):
                raw = [raw_record(self.table.partition_key[0].name.encode(), None, KEY, key)]
        else:
            raw = []
            for index, value in enumerate(split_key(self._key_types, key)):
                if not self._key_writers[index].write(out, value, 0, len(value)):
                    raw.append(raw_record(self.table.partition_key[index].name.encode(), None, KEY, value))
        fields = out.getvalue()
        return Partition(key, token(key), self._key_head + fields, fields, raw)

    # -- rows

    def has_data(self, cells: RowCells, plan: RowPlan) -> bool:
        """Whether a row has data, other than of dropped columns; then `newest` is its newest write time, by which
        changes are ordered."""
        has_data = cells.marked
        newest: i64 = cells.row_written
        index: i64 = 0
        while index < cells.count:
            if (cells.written[index] > newest or not has_data) and plan.columns[cells.column[index]].live:
                newest = cells.written[index]
                has_data = True
            index += 1
        index = 0
        while index < cells.deletions:
            written = cells.deletion_written[index]
            if (written > newest or not has_data) and plan.columns[cells.deletion_column[index]].live:
                newest = written
                has_data = True
            index += 1
        self.newest = newest
        return has_data

    def row(
        self, partition: Partition, cells: RowCells, data: bytes, plan: RowPlan, static: bool, op: i64 = LOGGED
    ) -> bytes:
        """The record of a row's data, an insert or an update, or a delete where its marker never lived (EXPIRED_TTL).

        The row's own deletion is a record by itself.

        `op` is the index of another one, of rows that are not the log's.
        """
        self._find_columns(cells, plan)
        if op == LOGGED:
            op = UPDATE if not cells.marked else DELETE if cells.row_ttl == EXPIRED_TTL else INSERT
        if cells.marked:
            self.written, self.ttl, self.expires = cells.row_written, cells.row_ttl, cells.row_expires
        else:
            self._newest(cells, data, plan)
        self._begin_row_digest(partition, op, cells, data, static)
        out = self._begin(partition, op, self._digest.of_row(cells, data, plan, self._first))
        self._put_clustering(out, cells, data, static)
        self._put_columns(out, cells, data, plan)
        self._put_deleted(out, cells, plan)
        self._raw_values.put(out, partition.raw)
        self._put_cells(out, cells, data, plan)
        out.append(u8(ABSENT))
        return out.getvalue()

    def row_deletion(self, partition: Partition, cells: RowCells, data: bytes, static: bool) -> bytes:
        """The record of a row's own deletion."""
        self._begin_row_digest(partition, DELETE, cells, data, static)
        out = self._begin_deletion(partition, DELETE, cells.deleted_written, cells.deleted_local)
        self._put_clustering(out, cells, data, static)
        self._put_nothing(out)
        self._raw_values.put(out, partition.raw)
        out.append(u8(ABSENT))
        out.append(u8(ABSENT))
        return out.getvalue()

    # -- other deletions

    def partition_deletion(self, partition: Partition, deletion: Deletion) -> bytes:
        """The record of a whole partition's deletion."""
        self._digest.begin(self._table_id, DELETE_PARTITION, partition.key)
        self._digest.no_clustering()
        out = self._begin_deletion(partition, DELETE_PARTITION, deletion.written, deletion.local)
        self._put_no_clustering(out)
        self._put_nothing(out)
        self._raw_values.put(out, partition.raw)
        out.append(u8(ABSENT))
        out.append(u8(ABSENT))
        return out.getvalue()

    def range_deletion(self, partition: Partition, deletion: Deletion, start: Bound, end: Bound) -> bytes:
        """The record of a range's deletion."""
        self._digest.begin(self._table_id, DELETE_RANGE, partition.key)
        self._digest.bounds(start, end)
        out = self._begin_deletion(partition, DELETE_RANGE, deletion.written, deletion.local)
        self._put_no_clustering(out)
        self._put_nothing(out)
        # The bounds stand behind `raw`, which has to know how exact they are.
        bounds = BytesWriter()
        bounds.append(u8(PRESENT))
        self._put_bound(bounds, start, START)
        self._put_bound(bounds, end, END)
        self._raw_values.put(out, partition.raw)
        out.append(u8(ABSENT))
        out.write(bounds.getvalue())
        return out.getvalue()

    # -- parts of a record, in its order

    def _begin_row_digest(self, partition: Partition, op: i64, cells: RowCells, data: bytes, static: bool) -> None:
        self._digest.begin(self._table_id, op, partition.key)
        if static:
            self._digest.no_clustering()
        else:
            self._digest.clustering(cells, data)

    def _begin_deletion(self, partition: Partition, op: i64, written: i64, local: i64) -> BytesWriter:
        self.written, self.ttl, self.expires = written, NONE, local
        return self._begin(partition, op, self._digest.of_deletion(written, local))

    def _begin(self, partition: Partition, op: i64, digest: bytes) -> BytesWriter:
        out = self._out
        out.truncate(0)
        out.write(self._head)
        write_long(out, op)
        write_long(out, partition.token)
        write_long(out, self.written)
        _put_optional(out, self.ttl)
        _put_optional(out, self.expires)
        out.write(digest)
        self.digest = digest
        out.append(u8(PRESENT))
        out.write(partition.fields)
        self._raw_values.clear()
        return out

    def _put_clustering(self, out: BytesWriter, cells: RowCells, data: bytes, static: bool) -> None:
        if static:
            self._put_no_clustering(out)
            return
        for index, writer in enumerate(self._clustering_writers):
            start, end = cells.clustering_start[index], cells.clustering_end[index]
            if start == NULL:
                out.append(u8(ABSENT))
            elif not writer.write(out, data, start, end):
                name = self.table.clustering[index].name.encode()
                self._raw_values.add_key(-1, name, KEY, data[start:end])

    def _put_no_clustering(self, out: BytesWriter) -> None:
        for _ in self._clustering_writers:
            out.append(u8(ABSENT))

    def _put_nothing(self, out: BytesWriter) -> None:
        """No column was written, none deleted."""
        for _ in self.table.columns:
            out.append(u8(ABSENT))
        write_long(out, 0)

    def _put_columns(self, out: BytesWriter, cells: RowCells, data: bytes, plan: RowPlan) -> None:
        first = self._first
        columns = plan.columns
        for column_index in plan.fields:
            if column_index < 0:
                out.append(u8(ABSENT))
                continue
            cell = first[column_index]
            column = columns[column_index]
            if column.form != SIMPLE:
                put_edit(out, cells, data, column, column_index, cell, self._raw_values)
            elif cell < 0 or cells.start[cell] == NULL:
                out.append(u8(ABSENT))
            elif not column.value.write(out, data, cells.start[cell], cells.end[cell]):
                self._raw_values.add_cell(column, cell, cells, data, VALUE)

    def _put_deleted(self, out: BytesWriter, cells: RowCells, plan: RowPlan) -> None:
        """The names of simple columns with a tombstone."""
        names: list[bytes] | None = None
        cell: i64 = 0
        while cell < cells.count:
            if cells.start[cell] == NULL and cells.path_start[cell] == NULL:
                column = plan.columns[cells.column[cell]]
                if column.live:
                    if names is None:
                        names = []
                    names.append(column.text)
            cell += 1
        if names is not None:
            write_long(out, len(names))
            for name in names:
                write_text(out, name)
        write_long(out, 0)

    def _put_cells(self, out: BytesWriter, cells: RowCells, data: bytes, plan: RowPlan) -> None:
        """The times of collection deletions and cells, where they are not the record's."""
        count: i64 = 0
        index: i64 = 0
        while index < cells.count:
            if self._cell_differs(cells, index) and plan.columns[cells.column[index]].live:
                count += 1
            index += 1
        index = 0
        while index < cells.deletions:
            if self._deletion_differs(cells, index) and plan.columns[cells.deletion_column[index]].live:
                count += 1
            index += 1
        if not count:
            out.append(u8(ABSENT))
            return
        out.append(u8(PRESENT))
        write_long(out, count)
        index = 0
        while index < cells.deletions:
            column = plan.columns[cells.deletion_column[index]]
            if self._deletion_differs(cells, index) and column.live:
                write_text(out, column.text)
                out.append(u8(ABSENT))
                write_long(out, cells.deletion_written[index])
                out.append(u8(ABSENT))
                _put_optional(out, cells.deletion_local[index])
            index += 1
        index = 0
        while index < cells.count:
            column = plan.columns[cells.column[index]]
            if self._cell_differs(cells, index) and column.live:
                self._put_cell(out, cells, data, column, index)
            index += 1
        write_long(out, 0)

    def _cell_differs(self, cells: RowCells, cell: i64) -> bool:
        return cells.written[cell] != self.written or cells.ttl[cell] != self.ttl or cells.expires[cell] != self.expires

    def _deletion_differs(self, cells: RowCells, deletion: i64) -> bool:
        return (
            cells.deletion_written[deletion] != self.written
            or self.ttl != NONE
            or cells.deletion_local[deletion] != self.expires
        )

    def _put_cell(self, out: BytesWriter, cells: RowCells, data: bytes, column: ColumnPlan, cell: i64) -> None:
        write_text(out, column.text)
        if cells.path_start[cell] == NULL:
            out.append(u8(ABSENT))
        else:
            out.append(u8(PRESENT))
            write_span(out, data, cells.path_start[cell], cells.path_end[cell])
        write_long(out, cells.written[cell])
        _put_optional(out, cells.ttl[cell])
        _put_optional(out, cells.expires[cell])

    def _put_bound(self, out: BytesWriter, bound: Bound, where: i64) -> None:
        value_count = len(bound.values)
        for index, writer in enumerate(self._clustering_writers):
            value = bound.values[index] if index < value_count else None
            if value is None:
                out.append(u8(ABSENT))
            elif not writer.write(out, value, 0, len(value)):
                name = self.table.clustering[index].name.encode()
                self._raw_values.add_key(0, name, where, value)
        write_long(out, value_count)
        out.append(u8(1 if bound.inclusive else 0))

    # -- what a row's cells say together

    def _find_columns(self, cells: RowCells, plan: RowPlan) -> None:
        """`_first[i]` = the first cell of the header's i-th column, or -1."""
        width: i64 = len(plan.columns)
        if width > len(self._first):
            self._first = vec[i64]([-1] * width)
        first = self._first
        index: i64 = 0
        while index < width:
            first[index] = -1
            index += 1
        index = cells.count - 1
        while index >= 0:
            first[cells.column[index]] = index
            index -= 1

    def _newest(self, cells: RowCells, data: bytes, plan: RowPlan) -> None:
        """The record's times without a row marker: the newest one's; at a tie the first by column name, then path."""
        best: i64 = -1
        index: i64 = 0
        while index < cells.count:
            if (
                best < 0
                or cells.written[index] > cells.written[best]
                or (cells.written[index] == cells.written[best] and _precedes(cells, data, plan, index, best))
            ):
                best = index
            index += 1
        if best >= 0:
            self.written, self.ttl, self.expires = cells.written[best], cells.ttl[best], cells.expires[best]
        index = 0
        deleted: i64 = -1
        while index < cells.deletions:
            written = cells.deletion_written[index]
            if best < 0 and deleted < 0:
                newer = True
            elif written != self.written:
                newer = written > self.written
            else:
                name = plan.columns[cells.deletion_column[index]].column.name_bytes
                if deleted >= 0:
                    newer = name < plan.columns[cells.deletion_column[deleted]].column.name_bytes
                else:
                    # A deletion ranks with an empty path, and before a cell of the same name and path.
                    newer = (name, b"") <= _cell_rank(cells, data, plan, best)
            if newer:
                deleted = index
                self.written, self.ttl, self.expires = written, NONE, cells.deletion_local[index]
            index += 1


def _put_optional(out: BytesWriter, value: i64) -> None:
    if value == NONE:
        out.append(u8(ABSENT))
    else:
        out.append(u8(PRESENT))
        write_long(out, value)


def _precedes(cells: RowCells, data: bytes, plan: RowPlan, first: i64, second: i64) -> bool:
    """Whether one cell comes before another by its column's name, then by its path."""
    first_rank: i64 = plan.ranks[cells.column[first]]
    second_rank: i64 = plan.ranks[cells.column[second]]
    if first_rank != second_rank:
        return first_rank < second_rank
    return _cell_rank(cells, data, plan, first) < _cell_rank(cells, data, plan, second)


def _cell_rank(cells: RowCells, data: bytes, plan: RowPlan, cell: i64) -> tuple[bytes, bytes]:
    name = plan.columns[cells.column[cell]].column.name_bytes
    start = cells.path_start[cell]
    return name, b"" if start == NULL else data[start : cells.path_end[cell]]
