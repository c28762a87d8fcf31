"""Pages of a table as `read` changes (docs/contracts.md 3), which merging sinks take as they take those of the log.

CQL does not show when markers of rows without cells were written, nor collections before Cassandra 5.0; of some older
releases not even frozen ones. They count as written shortly before the row was read. Lists stand right behind their
newest element. docs/snapshots.md has it row by row. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from tailrace_schemas.avro import Encoder
from tailrace_schemas.change import Cell, Change, ColumnDeletion, Deletion, Marker, Op, Origin, Source, record_times
from tailrace_schemas.cql.nested import read_count, read_element
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import join_key
from tailrace_schemas.digest import change_digest
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Column, Table
from tailrace_schemas.tokens import token
from tailrace_spark.rowstate.cells import context_of_total
from tailrace_spark.snapshot.page import EARLIEST, PageRecords, Records, least_times, row_number, writes_pages_of
from tailrace_spark.snapshot.reading import Page
from tailrace_spark.snapshot.selection import Selected

Values = Sequence[bytes | None]
_MICROS: Final = 1_000_000
GRACE_MICROS: Final = 60 * _MICROS
"""What has no write time stands as if it was written so long before it was asked for, but behind its column's drop.

A write that is under way then, with a time before that, comes by the log, and must win.
"""
_TICKS: Final = 10
"""Ticks of a time UUID in a microsecond."""
_UUID_EPOCH: Final = 0x01B21DD213814000
"""Ticks from 15 October 1582 to 1970."""
CHANGE_SCHEMA: Final = pa.schema(
    [("op", pa.string()), ("token", pa.int64()), ("written", pa.int64()), ("digest", pa.binary()),
     ("key", pa.binary()), ("value", pa.binary())]
)  # fmt: skip
"""Of changes as messages: framed keys and values as in a table's topic, and what tells and orders them."""


@dataclass(frozen=True, slots=True)
class _Indices:
    """Where a column's value, write time and TTL stand in a row; None: they are not told. `least`: `least_times`."""

    column: Column
    least: int
    value: int
    writetime: int | None
    ttl: int | None


class ReadChanges:
    """Makes changes of one task's pages, which come in order: a change for each row, and one for static columns.

    `selected` has all columns with their times. Raises UnsupportedError for a counter table, but with `counters`: CQL
    does not show shards. A total stands for all of them, so who merges it has to read totals ever after.
    """

    def __init__(self, table: Table, selected: Sequence[Selected], datacenter: str, *, counters: bool = False) -> None:
        if table.is_counter and not counters:
            raise UnsupportedError(f"{table} has counters: CQL shows totals, and changes have shards")
        index, least = _index_of(selected), least_times(table)
        self._table = table
        self._key = [index[column.name_bytes, "value"] for column in table.partition_key]
        self._clustering = [index[column.name_bytes, "value"] for column in table.clustering]
        self._static = [_indices_of(column, index, least) for column in table.static]
        self._regular = [_indices_of(column, index, least) for column in table.regular]
        self._types = [column.type for column in table.partition_key]
        self._source = Source("", datacenter, Position(0, 0, 0), 0, 1, Origin.SNAPSHOT)
        self.last_key: bytes | None = None
        """The key of the partition that the last row is of."""
        self.last_token = 0
        """Its token."""

    def after(self, last_key: bytes | None) -> ReadChanges:
        """The same for rows behind one of this partition, whose static columns have their change already."""
        following = copy(self)
        following.last_key, following.last_token = last_key, 0 if last_key is None else token(last_key)
        return following

    def changes(self, columns: Sequence[Values], requested_at: int) -> Iterator[Change]:
        """The changes of a page that was asked for at this time, microseconds since the epoch."""
        source = replace(self._source, seen=requested_at // 1000)
        for row in zip(*columns, strict=True):
            key = join_key(self._types, [row[position] or b"" for position in self._key])
            if key != self.last_key:
                self.last_key, self.last_token = key, token(key)
                static = _Cells(requested_at)
                static.add(row, self._static)
                if static.cells:
                    yield self._change(key, None, None, static, source)
            clustering = tuple([row[position] for position in self._clustering])
            if None in clustering:  # the partition has static columns only
                continue
            cells = _Cells(requested_at)
            cells.add(row, self._regular)
            if self._table.is_counter and not cells.cells:
                continue
            # Without a cell that lives a row is there by its marker.
            marker = None if cells.cells else Marker(requested_at - GRACE_MICROS)
            yield self._change(key, clustering, marker, cells, source)

    def _change(
        self,
        key: bytes,
        clustering: tuple[bytes | None, ...] | None,
        marker: Marker | None,
        cells: _Cells,
        source: Source,
    ) -> Change:
        change = Change(
            op=Op.READ,
            table=self._table,
            token=self.last_token,
            key=key,
            clustering=clustering,
            static=clustering is None,
            marker=marker,
            cells=tuple(cells.cells),
            column_deletions=tuple(cells.deletions),
            source=source,
        )
        return replace(change, digest=change_digest(change))


def total_of(value: bytes, requested_at: int) -> bytes:
    """A counter's cell for a total as SELECT gives it."""
    return context_of_total(int.from_bytes(value, "big", signed=True), requested_at)


def _index_of(selected: Sequence[Selected]) -> dict[tuple[bytes, str], int]:
    """Where a row has the value, write time or TTL of a column, by the column's name."""
    return {(item.column.name_bytes, item.kind): position for position, item in enumerate(selected)}


def _indices_of(column: Column, index: dict[tuple[bytes, str], int], least: dict[bytes, int]) -> _Indices:
    name = column.name_bytes
    value, writetime, ttl = index[name, "value"], index.get((name, "writetime")), index.get((name, "ttl"))
    return _Indices(column, least.get(name, EARLIEST), value, writetime, ttl)


class _Cells:
    """The cells of a row, and the deletions of its collections, read at `requested_at`."""

    def __init__(self, requested_at: int) -> None:
        self._requested_at = requested_at
        self.cells: list[Cell] = []
        self.deletions: list[ColumnDeletion] = []

    def add(self, row: Values, indices: Sequence[_Indices]) -> None:
        """Those of these columns that are not null."""
        for column_indices in indices:
            value = row[column_indices.value]
            if value is None:
                continue
            written = None if column_indices.writetime is None else row[column_indices.writetime]
            ttl = None if column_indices.ttl is None else row[column_indices.ttl]
            if column_indices.column.type.kind == "counter":
                context = total_of(value, self._requested_at)
                self._put(column_indices, None, None, None, context)
            elif column_indices.column.type.multicell:
                self._elements(column_indices, value, written, ttl)
            else:
                self._put(column_indices, None, _number(written), _number(ttl), value)

    def _undated(self, indices: _Indices) -> int:
        """The write time of what has none."""
        return max(self._requested_at - GRACE_MICROS, indices.least)

    def _replaced(self, indices: _Indices, times: Sequence[int | None]) -> int:
        """The write time up to which a whole collection replaces what the log has of it."""
        if indices.column.type.kind != "list":  # elements have the paths that the log has
            return self._undated(indices) - 1
        # What is newer than the newest element of the answer is not in it, and comes by the log. Times that are far
        # ahead are those of writers who chose them: what is written later is older than they are.
        newest = [time for time in times if time is not None and time <= self._requested_at + GRACE_MICROS]
        return max(newest, default=self._requested_at - 1)

    def _put(self, indices: _Indices, path: bytes | None, written: int | None, ttl: int | None, value: bytes) -> None:
        # The seconds left, and not those that the cell was written with, which CQL does not show.
        expires = None if ttl is None else self._requested_at // _MICROS + ttl
        written = self._undated(indices) if written is None else written
        self.cells.append(Cell(indices.column, path, written, ttl, expires, value))

    def _elements(self, indices: _Indices, value: bytes, written: bytes | None, ttl: bytes | None) -> None:
        column = indices.column
        is_list = column.type.kind == "list"
        times = _numbers(written, read_count(value, 4)) if is_list else []
        last = self._replaced(indices, times)
        elements = _elements_of(column.type, value, last + 1)
        times = times or _numbers(written, len(elements))
        ttls = _numbers(ttl, len(elements))
        if is_list or written is None:
            # Nobody tells its elements from those of the log: what the log has from before is replaced as a whole.
            self.deletions.append(ColumnDeletion(column, Deletion(last, self._requested_at // _MICROS)))
            times = [last + 1] * len(elements)
        for element, element_written, element_ttl in zip(elements, times, ttls, strict=True):
            if element is not None:
                path, data = element
                self._put(indices, path, element_written, element_ttl, data)


def _elements_of(cql_type: CqlType, value: bytes, written: int) -> list[tuple[bytes, bytes] | None]:
    """(path, bytes) of each element of a value as SELECT gives it; None for fields that are null.

    Those of a list have places in front of what is appended after `written`.
    """
    if cql_type.kind == "udt":
        fields, offset = list[bytes | None](), 0
        while offset < len(value):
            field, offset = read_element(value, offset)
            fields.append(field)
        return [None if field is None else (index.to_bytes(2, "big"), field) for index, field in enumerate(fields)]
    items = [item or b"" for item in _items(value, 2 if cql_type.kind == "map" else 1)]
    if cql_type.kind == "map":
        return list(zip(items[::2], items[1::2], strict=True))
    if cql_type.kind == "set":
        return [(item, b"") for item in items]
    return [(_list_path(written, index - len(items)), item) for index, item in enumerate(items)]


def _items(value: bytes, per_entry: int = 1) -> list[bytes | None]:
    """The bytes of each element of a collection; of a map's entries both."""
    items, offset = list[bytes | None](), 4
    for _ in range(read_count(value, 4 * per_entry) * per_entry):
        item, offset = read_element(value, offset)
        items.append(item)
    return items


def _list_path(written: int, ticks: int) -> bytes:
    """A time UUID so many ticks (100 ns) from a time: the place of a list's element, behind which later ones come.

    The clock sequence and node are those of no client (UUIDGen makes others).
    """
    time = max(0, written) * _TICKS + _UUID_EPOCH + ticks
    low, middle, high = time & 0xFFFFFFFF, time >> 32 & 0xFFFF, time >> 48 & 0x0FFF | 0x1000
    return low.to_bytes(4, "big") + middle.to_bytes(2, "big") + high.to_bytes(2, "big") + b"\x80\x80" + b"\x80" * 6


def _number(data: bytes | None) -> int | None:
    return None if data is None else int.from_bytes(data, "big", signed=True)


def _numbers(data: bytes | None, count: int) -> list[int | None]:
    """The times of so many elements; null stands for all of them."""
    if data is None:
        return [None] * count
    numbers = [_number(item) for item in _items(data)]
    return numbers + [None] * (count - len(numbers))


class TaskRecords:
    """Makes records of one task's pages, which come in order. `selected` has all columns with their times.

    Raises UnsupportedError for a counter table, but with `counters` (`ReadChanges`).
    """

    def __init__(
        self, table: Table, selected: Sequence[Selected], encoder: Encoder, datacenter: str, *, counters: bool = False
    ) -> None:
        self._encoder = encoder
        self._changes = ReadChanges(table, selected, datacenter, counters=counters)
        self._pages: PageRecords | None = None
        if writes_pages_of(table):
            self._pages = PageRecords(table, encoder, _index_of(selected), datacenter, GRACE_MICROS)

    def of(self, page: Page) -> Records:
        """The records of a page."""
        if self._pages is not None:
            return self._pages.records(page.parsed.data, page.requested_at)
        return records_of(self._changes.changes(page.columns, page.requested_at), self._encoder)


def records_of(changes: Iterable[Change], encoder: Encoder) -> Records:
    """The records of changes, in their order."""
    records = Records()
    for change in changes:
        written, ttl, expires = record_times(change)
        records.tokens.append(change.token)
        records.written.append(written)
        records.ttl.append(ttl)
        records.expires.append(expires)
        records.digests.append(change.digest)
        records.keys.append(encoder.key(change) or b"")
        records.values.append(encoder.value(change))
        records.numbers.append(row_number(change.key or b"", None if change.static else change.clustering or ()))
    return records


def messages(records: Records) -> Any:
    """The RecordBatch of records, by CHANGE_SCHEMA."""
    count = len(records.tokens)
    columns = ([Op.READ.value] * count, records.tokens, records.written, records.digests, records.keys, records.values)
    return batch_of(columns, CHANGE_SCHEMA)


def batch_of(columns: Sequence[Sequence[object]], schema: pa.Schema) -> pa.RecordBatch:
    """The RecordBatch of columns of values in a schema's order."""
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
