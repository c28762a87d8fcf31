"""The changes of one table update to the rows of its log table, split as ScyllaDB splits a mutation. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from operator import attrgetter
from typing import Final

from tailrace_schemas.change import Bound, Cell, Change, Deletion, Op, record_times
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.digest import mutation_digest
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.table import Column
from tailrace_schemas.tokens import token
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.sinks.cassandra.cql import ABSENT, Mutation, Part, Value, mutation_of
from tailrace_spark.sinks.cassandra.log.layout import (
    BATCH_SEQ_NO,
    END_OF_BATCH,
    OPERATION,
    STREAM_ID,
    TIME,
    TTL,
    deleted,
    deleted_elements,
)

_UUID_EPOCH: Final = 0x01B21DD213814000
_LATEST_TIME: Final = (1 << 63) - 1
_LATEST_UUID: Final = (1 << 60) - 1
_VARIANT: Final = 1 << 63
_DIGEST_BITS: Final = (1 << 62) - 1
_TRUE: Final = b"\x01"
# Of one partition, so one mutation to Cassandra; far below the least that any segment size allows.
_BATCH_ROWS: Final = 32
_BATCH_BYTES: Final = 64 * 1024


class Operation(IntEnum):
    """What a log row says; the numbers are ScyllaDB's."""

    PRE_IMAGE = 0
    UPDATE = 1
    INSERT = 2
    ROW_DELETE = 3
    PARTITION_DELETE = 4
    RANGE_START_INCLUSIVE = 5
    RANGE_START_EXCLUSIVE = 6
    RANGE_END_INCLUSIVE = 7
    RANGE_END_EXCLUSIVE = 8
    POST_IMAGE = 9


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row of a log table: its stream, write time in microseconds, and Cassandra's bytes by column name."""

    stream: bytes
    written: int
    values: dict[str, bytes]


@dataclass(slots=True)
class _Edit:
    """What one slot does to one multi-cell column."""

    column: Column
    deleted: bool = False
    live: list[tuple[bytes, bytes]] = field(default_factory=list)
    removed: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Slot:
    """What one change wrote at one time with one TTL."""

    cells: list[Cell] = field(default_factory=list)
    edits: dict[str, _Edit] = field(default_factory=dict)

    def edit(self, column: Column) -> _Edit:
        return self.edits.setdefault(column.name, _Edit(column))


# Where the parts of one write time stand: static row, inserts, updates, row, range, partition deletions (split.cc).
_STATIC, _INSERTS, _UPDATES, _ROWS, _RANGES, _PARTITION = range(6)
# (place, index of the change, TTL): the order among the rows of one write time.
_Rank = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Part:
    """A row that is to be, or two of them for a range, which is known but for its place in the batch."""

    rank: _Rank
    written: int
    rows: tuple[dict[str, bytes], ...]


def log_rows(update: Sequence[Delivered]) -> list[LogRow]:
    """The rows of all changes of one table update, in the order of their keys within each stream.

    By write time and TTL, each written row of the table gives one row (docs/log-tables.md). Their order:
    the static row, inserts, updates, deletions of rows, ranges, the partition. A collection's deletion counts as
    written a microsecond later, as ScyllaDB has it, so that an overwrite is one row. `cdc$time` is the write time with
    62 bits of the update's digest. So copies of a mutation give the same rows, and two mutations different ones.

    Of a change that is there twice, the last counts. Truncations give no row. Raises UnsupportedError for what a log
    table cannot say: rows of a snapshot, and write times that no time UUID holds.
    """
    changes = _in_order(update)
    if not changes or changes[0].change.op is Op.TRUNCATE:
        return []
    digest = mutation_digest(delivered.change.digest for delivered in changes)
    parts: dict[int, list[_Part]] = {}
    for index, delivered in enumerate(changes):
        for written_part in _parts(delivered.change, index):
            parts.setdefault(written_part.written, []).append(written_part)
    streams = _streams(changes)
    rows: list[LogRow] = []
    for written in sorted(parts):
        if written not in streams:
            raise UnsupportedError(f"{changes[0].change.table}: no stream is known for write time {written}")
        rows += _batch(streams[written], written, digest, sorted(parts[written], key=_rank))
    return rows


def write_times(change: Change) -> set[int]:
    """The times in microseconds under which a change stands in the log."""
    if change.op is Op.TRUNCATE:
        return set()
    times = {cell.written for cell in change.cells}
    times |= {_overwritten_at(column_deletion.deletion) for column_deletion in change.column_deletions}
    if change.marker is not None:
        times.add(change.marker.written)
    if change.deletion is not None:
        times.add(change.deletion.written)
    return times


def _overwritten_at(deletion: Deletion) -> int:
    """A microsecond after a collection's deletion, but behind the last write time there is none."""
    return min(deletion.written + 1, _LATEST_TIME)


def time_uuid(written: int, digest: bytes) -> bytes:
    """The 16 bytes of `cdc$time`: a version 1 UUID of the write time, which holds 62 bits of the digest.

    Raises UnsupportedError for times before 1582-10-15 or after the year 5236.
    """
    ticks = written * 10 + _UUID_EPOCH
    if not 0 <= ticks <= _LATEST_UUID:
        raise UnsupportedError(f"write time {written} fits into no time UUID, so into no log table")
    high = (ticks & 0xFFFFFFFF) << 32 | (ticks >> 32 & 0xFFFF) << 16 | 0x1000 | ticks >> 48
    return struct.pack(">QQ", high, _VARIANT | int.from_bytes(digest[:8], "big") & _DIGEST_BITS)


def _in_order(update: Iterable[Delivered]) -> list[Delivered]:
    by_index: dict[int, Delivered] = {}
    for delivered in update:
        source = delivered.change.source
        by_index[0 if source is None else source.index] = delivered
    return [by_index[index] for index in sorted(by_index)]


def _streams(changes: Iterable[Delivered]) -> dict[int, bytes]:
    """The stream of each write time."""
    streams: dict[int, bytes] = {}
    for delivered in changes:
        if delivered.assignment is not None:
            streams[record_times(delivered.change)[0]] = delivered.assignment.stream_id
        streams.update((written, assignment.stream_id) for written, assignment in delivered.others)
    return streams


def _batch(stream: bytes, written: int, digest: bytes, parts: Iterable[_Part]) -> list[LogRow]:
    """The rows of one write time, numbered; the last one ends the batch."""
    key = {STREAM_ID: stream, TIME: time_uuid(written, digest)}
    rows = [
        LogRow(stream, written, {**key, BATCH_SEQ_NO: struct.pack(">i", sequence), **values})
        for sequence, values in enumerate(values for written_part in parts for values in written_part.rows)
    ]
    rows[-1].values[END_OF_BATCH] = _TRUE
    return rows


def _rank(part: _Part) -> _Rank:
    return part.rank


def _parts(change: Change, number: int) -> Iterator[_Part]:
    if change.op is Op.READ:
        raise UnsupportedError(f"{change.table}: rows of a snapshot are no changes, so in no log table")
    key = _key_values(change)
    deletion = change.deletion
    if deletion is not None and change.op is Op.DELETE_PARTITION:
        yield _Part((_PARTITION, number, 0), deletion.written, (_values(Operation.PARTITION_DELETE, key),))
    elif deletion is not None and change.start is not None and change.end is not None:
        yield _Part((_RANGES, number, 0), deletion.written, _range(change, key, change.start, change.end))
    elif deletion is not None:
        yield _Part((_ROWS, number, 0), deletion.written, (_values(Operation.ROW_DELETE, key),))
    for (written, ttl), slot in sorted(_slots(change).items(), key=lambda item: item[0]):
        yield from _data(change, number, key, written, ttl, slot)


def _data(change: Change, number: int, key: dict[str, bytes], written: int, ttl: int, slot: _Slot) -> Iterator[_Part]:
    """One row, or two where an INSERT's slot has cells of a collection that it does not overwrite.

    Such cells are an UPDATE's by their nature, or an INSERT's whose TTL keeps its overwriting apart (split.cc).
    """
    marker, edits = change.marker, list(slot.edits.values())
    if marker is None or (written, ttl) != (marker.written, marker.ttl or 0):
        values = _values(Operation.UPDATE, key, ttl, slot.cells, edits)
        yield _Part((_STATIC if change.static else _UPDATES, number, ttl), written, (values,))
        return
    overwritten = [edit for edit in edits if edit.deleted]
    yield _Part((_INSERTS, number, ttl), written, (_values(Operation.INSERT, key, ttl, slot.cells, overwritten),))
    if len(overwritten) < len(edits):
        rest = [edit for edit in edits if not edit.deleted]
        yield _Part((_UPDATES, number, ttl), written, (_values(Operation.UPDATE, key, ttl, (), rest),))


def _slots(change: Change) -> dict[tuple[int, int], _Slot]:
    """What was written by (write time, TTL); 0 for none, which deletions have."""
    slots: dict[tuple[int, int], _Slot] = {}
    if change.marker is not None:
        slots[change.marker.written, change.marker.ttl or 0] = _Slot()
    for cell in change.cells:
        ttl = 0 if cell.tombstone else cell.ttl or 0
        slot = slots.setdefault((cell.written, ttl), _Slot())
        if cell.path is None:
            slot.cells.append(cell)
        elif cell.value is None:
            slot.edit(cell.column).removed.append(cell.path)
        else:
            slot.edit(cell.column).live.append((cell.path, cell.value))
    for column_deletion in change.column_deletions:
        written = _overwritten_at(column_deletion.deletion)
        slots.setdefault((written, 0), _Slot()).edit(column_deletion.column).deleted = True
    return slots


def _values(
    operation: Operation,
    key: dict[str, bytes],
    ttl: int = 0,
    cells: Iterable[Cell] = (),
    edits: Iterable[_Edit] = (),
) -> dict[str, bytes]:
    values = {OPERATION: bytes((operation,)), **key}
    if ttl:
        values[TTL] = struct.pack(">q", ttl)
    for cell in cells:
        if cell.value is None:
            values[deleted(cell.column)] = _TRUE
        elif cell.column.type.kind != "empty":
            values[cell.column.name] = cell.value
    for edit in edits:
        if edit.deleted:
            values[deleted(edit.column)] = _TRUE
        # ScyllaDB writes a user type whole with every edit: of what got no value, a value of nulls.
        if edit.live or edit.column.type.kind == "udt":
            values[edit.column.name] = _frozen(edit.column.type, edit.live)
        if edit.removed:
            values[deleted_elements(edit.column)] = _collection(len(edit.removed), edit.removed)
    return values


def _frozen(cql_type: CqlType, cells: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The cells of a multi-cell column as the one value of its frozen form (CollectionSerializer, TupleType)."""
    match cql_type.kind:
        case "set":
            return _collection(len(cells), [path for path, _ in cells])
        case "udt":
            fields = {int.from_bytes(path, "big"): value for path, value in cells}
            last = max([len(cql_type.fields) - 1, *fields])  # later definitions have more fields
            return b"".join(_sized(fields.get(index)) for index in range(last + 1))
        case _:
            return _collection(len(cells), [octets for cell in cells for octets in cell])


def _collection(count: int, parts: Iterable[bytes]) -> bytes:
    return struct.pack(">i", count) + b"".join(map(_sized, parts))


def _sized(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value


def _range(change: Change, key: dict[str, bytes], start: Bound, end: Bound) -> tuple[dict[str, bytes], ...]:
    """Two rows, one for each end, with the clustering values that the end has; none of them where it is open."""
    first = Operation.RANGE_START_INCLUSIVE if start.inclusive else Operation.RANGE_START_EXCLUSIVE
    last = Operation.RANGE_END_INCLUSIVE if end.inclusive else Operation.RANGE_END_EXCLUSIVE
    return (
        _values(first, {**key, **_clustering(change, start.values)}),
        _values(last, {**key, **_clustering(change, end.values)}),
    )


def _key_values(change: Change) -> dict[str, bytes]:
    columns = change.table.partition_key
    values = split_key([column.type for column in columns], change.key or b"")
    named = {column.name: value for column, value in zip(columns, values, strict=True)}
    return {**named, **_clustering(change, change.clustering or ())}


def _clustering(change: Change, values: Sequence[bytes | None]) -> dict[str, bytes]:
    named = zip(change.table.clustering, values, strict=False)
    return {column.name: value for column, value in named if value is not None}


@dataclass(frozen=True, slots=True)
class LogInsert:
    """An existing log table, and what a definition's changes write into it.

    `columns`: the log's columns in the order of `statement`, each with the name that the definition has for it.
    """

    columns: Mapping[str, str]
    statement: str


@dataclass(frozen=True, slots=True)
class Update:
    """One update's rows, and the places of its changes."""

    insert: LogInsert | None
    rows: list[LogRow]
    changes: tuple[Delivered, ...]


def updates_of(changes: Iterable[Delivered]) -> Iterator[tuple[Delivered, ...]]:
    for _, together in groupby(changes, attrgetter("update")):
        yield tuple(together)


def was_streamed(changes: tuple[Delivered, ...]) -> bool:
    source = changes[0].change.source
    return source is not None and source.streamed


def mutations_of(updates: Iterable[Update], ttl_seconds: int) -> Iterator[Mutation]:
    """The rows by statement and stream, as many together as Cassandra takes as one mutation."""
    by_stream: dict[tuple[str, bytes], list[tuple[Value, ...]]] = {}
    for update in updates:
        if update.insert is not None:
            for row in update.rows:
                bound = _bound(update.insert, row, ttl_seconds)
                by_stream.setdefault((update.insert.statement, row.stream), []).append(bound)
    for (statement, stream), rows in by_stream.items():
        stream_token = token(stream)
        some: list[Part] = []
        cells = size = 0
        for values in rows:
            lengths = [len(value) for value in values if isinstance(value, bytes)]
            weight = sum(lengths)
            if some and (len(some) >= _BATCH_ROWS or size + weight > _BATCH_BYTES):
                yield mutation_of(tuple(some), stream_token, cells)
                some, cells, size = [], 0, 0
            some.append((statement, values))
            cells += len(lengths)
            size += weight
        yield mutation_of(tuple(some), stream_token, cells)


def _bound(insert: LogInsert, row: LogRow, ttl_seconds: int) -> tuple[Value, ...]:
    values = [row.values.get(name, ABSENT) for name in insert.columns.values()]
    return (*values, struct.pack(">q", row.written), struct.pack(">i", ttl_seconds))
