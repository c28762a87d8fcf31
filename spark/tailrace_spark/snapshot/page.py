"""The rows of a page as the native protocol has them: to columns of Cassandra's bytes, or to records of framed Avro.

It is all that is computed for each value that is read, so it is compiled. Records are of op `read`, written by the
plans that the agent writes by, without objects for cells. One definition with `changes` and `avro.encode`: they say
the same of every row, byte for byte, and the tests compare them. Their tables' columns are all simple: no sets, lists,
maps and user types that are not frozen, and no counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from librt.strings import BytesWriter, read_i32_be, read_i32_le, read_i64_be, write_i32_le
from librt.vecs import vec
from mypy_extensions import i64, u8

from tailrace_schemas.avro.encode import Encoder
from tailrace_schemas.change import Op, Origin
from tailrace_schemas.cql.values import join_key
from tailrace_schemas.errors import CorruptError, TruncatedError
from tailrace_schemas.table import Column, Table
from tailrace_schemas.transcode.plans import RowPlan
from tailrace_schemas.transcode.primitives import write_long, write_text
from tailrace_schemas.transcode.record import Partition, RecordWriter
from tailrace_schemas.transcode.row import NONE, NULL, RowCells

ROW_BITS: Final = 44
"""The bits of a row's number."""
EARLIEST: Final = -(2**63)
"""The earliest write time that there is."""
_MICROS: Final = 1_000_000
_READ: Final = list(Op).index(Op.READ)
_ORIGIN: Final = list(Origin).index(Origin.SNAPSHOT)


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


def row_number(key: bytes, clustering: Sequence[bytes | None] | None) -> int:
    """A number that a row has by its key, a static row by None; two rows have the same with odds of 1 in 2^44."""
    parts = [b"static" if clustering is None else b"", len(key).to_bytes(4, "big"), key]
    for value in () if clustering is None else clustering:
        data = value or b""
        parts.append(len(data).to_bytes(4, "big"))
        parts.append(data)
    return int.from_bytes(blake2b(b"".join(parts), digest_size=8).digest(), "big") >> (64 - ROW_BITS)


def writes_pages_of(table: Table) -> bool:
    """Whether a table's pages can be written so."""
    return not table.is_counter and not any(column.type.multicell for column in table.columns)


class Records:
    """The records of a page, in columns: `keys` are Kafka's, `numbers` those of the rows. Times are the records'."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.written: list[int] = []
        self.ttl: list[int | None] = []
        self.expires: list[int | None] = []
        self.digests: list[bytes] = []
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.numbers: list[int] = []


class _Columns:
    """The columns of one kind of row: their plan, and where in a page's row their values and times stand."""

    def __init__(
        self,
        writer: RecordWriter,
        columns: tuple[Column, ...],
        indices: dict[tuple[bytes, str], int],
        least: dict[bytes, int],
    ) -> None:
        in_order = tuple(sorted(columns, key=_name))
        self.plan: RowPlan = writer.plan(in_order)
        self.value = vec[i64]([indices[column.name_bytes, "value"] for column in in_order])
        self.written = vec[i64]([indices.get((column.name_bytes, "writetime"), -1) for column in in_order])
        self.ttl = vec[i64]([indices.get((column.name_bytes, "ttl"), -1) for column in in_order])
        self.least = vec[i64]([least.get(column.name_bytes, EARLIEST) for column in in_order])


class PageRecords:
    """Writes the records of one task's pages, which come in order. `grace`: microseconds (`changes.GRACE_MICROS`).

    `indices` has the index of each selected column by its name and kind, `width` how many are selected.
    """

    def __init__(
        self, table: Table, encoder: Encoder, indices: dict[tuple[bytes, str], int], datacenter: str, grace: int
    ) -> None:
        writer = RecordWriter(table, encoder)
        self._writer = writer
        self._types = tuple([column.type for column in table.partition_key])
        self._key = vec[i64]([indices[column.name_bytes, "value"] for column in table.partition_key])
        self._clustering = vec[i64]([indices[column.name_bytes, "value"] for column in table.clustering])
        least = least_times(table)
        self._static = _Columns(writer, table.static, indices, least)
        self._regular = _Columns(writer, table.regular, indices, least)
        self._has_static = bool(table.static)
        self._width: i64 = len(indices)
        self._start = vec[i64]([0] * len(indices))
        self._end = vec[i64]([0] * len(indices))
        self._cells = RowCells()
        self._partition: Partition | None = None
        self._grace: i64 = grace
        self._datacenter = datacenter.encode()

    def records(self, data: bytes, requested_at: i64) -> Records:
        """Those of a page (`read_lengths` has its form) that was asked for at this time, in microseconds.

        Raises TruncatedError where the bytes end too early.
        """
        records = Records()
        source = self._source(requested_at)
        rows = i64(row_count(data))
        offset: i64 = 4
        row: i64 = 0
        while row < rows:
            offset = self._find(data, offset)
            self._row(records, data, requested_at, source)
            row += 1
        return records

    def _source(self, requested_at: i64) -> bytes:
        """The record's last field: contracts.md section 3, `source`."""
        out = BytesWriter()
        write_text(out, b"")
        write_text(out, self._datacenter)
        for field_value in (0, 0, 0, 0, 1, _ORIGIN):  # epoch, segment, offset, index, count, origin
            write_long(out, field_value)
        out.append(u8(1))
        write_long(out, requested_at // 1000)
        write_long(out, 0)
        return out.getvalue()

    def _find(self, data: bytes, offset: i64) -> i64:
        """Where the values of the row at an offset stand; the offset behind it."""
        size: i64 = len(data)
        column: i64 = 0
        while column < self._width:
            start: i64 = offset + 4
            if start > size:
                raise TruncatedError("a value's length is cut", offset=offset)
            length = i64(read_i32_be(data, offset))
            offset = start
            if length < 0:
                self._start[column] = NULL
                self._end[column] = NULL
            else:
                offset = start + length
                if offset > size:
                    raise TruncatedError(f"a value of {length} bytes is cut", offset=start)
                self._start[column] = start
                self._end[column] = offset
            column += 1
        return offset

    def _row(self, records: Records, data: bytes, requested_at: i64, source: bytes) -> None:
        key = self._key_of(data)
        partition = self._partition
        if partition is None or partition.key != key:
            partition = self._partition = self._writer.partition(key)
            if self._has_static:
                self._fill(data, self._static, requested_at)
                if self._cells.count:
                    self._put(records, partition, data, self._static.plan, None, source)
        clustering: list[bytes | None] = []
        for column in self._clustering:
            if self._start[column] == NULL:  # the partition has static columns only
                return
            clustering.append(data[self._start[column] : self._end[column]])
        self._fill(data, self._regular, requested_at)
        for column in self._clustering:
            self._cells.add_clustering(self._start[column], self._end[column])
        if not self._cells.count:  # without a cell that lives a row is there by its marker
            self._cells.marked = True
            self._cells.row_written = requested_at - self._grace
        self._put(records, partition, data, self._regular.plan, clustering, source)

    def _key_of(self, data: bytes) -> bytes:
        if len(self._key) == 1:
            value_index = self._key[0]
            return data[self._start[value_index] : self._end[value_index]]
        return join_key(self._types, [data[self._start[column] : self._end[column]] for column in self._key])

    def _fill(self, data: bytes, columns: _Columns, requested_at: i64) -> None:
        cells = self._cells
        cells.clear()
        column: i64 = 0
        count: i64 = len(columns.value)
        while column < count:
            value_index = columns.value[column]
            start = self._start[value_index]
            if start != NULL:
                written: i64 = max(requested_at - self._grace, columns.least[column])
                time = columns.written[column]
                if time >= 0 and self._start[time] != NULL:
                    written = i64(read_i64_be(data, self._start[time]))
                ttl: i64 = NONE
                expires: i64 = NONE
                time = columns.ttl[column]
                if time >= 0 and self._start[time] != NULL:
                    ttl = i64(read_i32_be(data, self._start[time]))
                    expires = requested_at // _MICROS + ttl
                index = cells.add_cell(column, written, ttl, expires)
                cells.start[index] = start
                cells.end[index] = self._end[value_index]
            column += 1

    def _put(
        self,
        records: Records,
        partition: Partition,
        data: bytes,
        plan: RowPlan,
        clustering: list[bytes | None] | None,
        source: bytes,
    ) -> None:
        writer = self._writer
        body = writer.row(partition, self._cells, data, plan, clustering is None, _READ)
        records.tokens.append(partition.token)
        records.written.append(writer.written)
        records.ttl.append(None if writer.ttl == NONE else writer.ttl)
        records.expires.append(None if writer.expires == NONE else writer.expires)
        records.digests.append(writer.digest)
        records.keys.append(partition.message_key)
        records.values.append(body + source)
        records.numbers.append(row_number(partition.key, clustering))


def least_times(table: Table) -> dict[bytes, int]:
    """The least write times of cells that SELECT shows, by their columns: behind the drop of one of the same name."""
    return {drop.column.name_bytes: min(drop.dropped_at + 1, 2**63 - 1) for drop in table.dropped}


def _name(column: Column) -> bytes:
    return column.name_bytes
