"""Changes of one definition taken apart into columns: what a record has of each change, its values still as bytes.

It is all that is computed for each change of a history, so it is compiled; `change_batch` makes Arrow's arrays of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tailrace_schemas.avro.convert import Convert, renaming
from tailrace_schemas.change import Change, Op, Origin, Source, record_times
from tailrace_schemas.cql.coding import Codec
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec, split_key
from tailrace_schemas.table import Column, Table
from tailrace_spark.batch.delivery import Delivered, RecordId

Times = tuple[int, int | None, int | None]

AS_BYTES: Final = frozenset(
    ("ascii", "bigint", "blob", "boolean", "date", "double", "float", "int", "smallint", "text", "time", "timestamp",
     "timeuuid", "tinyint", "uuid")
)  # fmt: skip
"""The types whose values stay bytes in a column: all of a column become an array at once."""
NOTHING_DELETED: Final[list[str]] = []
"""What most changes have for `deleted`: one and the same object, so that a comparison by identity finds it."""
_DIGEST: Final = 16
_NOT_ONE_ROW: Final = (Op.DELETE_RANGE, Op.TRUNCATE)


class ValueColumn:
    """The values of one column: bytes, or of types not in AS_BYTES what Avro has."""

    def __init__(self, column: Column, rows: int) -> None:
        self.type: CqlType = column.type
        self.name = column.name
        self.multicell = column.type.multicell
        self.as_bytes = column.type.kind in AS_BYTES
        self.values: list[object] = [None] * rows
        self._codec: Codec = codec(column.type)
        self._rename: Convert | None = renaming(column.type, True)

    def put(self, row: int, data: bytes) -> bool:
        """Have a value in a row; False, and nothing is done, where that would not give back exactly these bytes."""
        if self.as_bytes:
            self.values[row] = data
            return True
        value = self._codec.decode(data)
        if value is None or not self._codec.gives_back(data, value):
            return False
        self.values[row] = value if self._rename is None else self._rename(value)
        return True

    def show(self, row: int, data: bytes) -> None:
        """Have a value in a row, whether it would give back these bytes or not. Raises DecodeError where it is none."""
        if self.as_bytes:
            self.values[row] = data
            return
        value = self._codec.decode(data)
        self.values[row] = value if value is None or self._rename is None else self._rename(value)


class ChangeColumns:
    """Up to `capacity` changes of one definition, one row each: all but those that only the record itself can say.

    These have edits of elements, ranges, no key, or bytes that are no value of their type. The lists have a value for
    each of `rows` changes, value columns `capacity` of them. `taken` are the changes. Owned by one thread.
    """

    def __init__(self, table: Table, capacity: int, octets: int) -> None:
        """`octets`: of keys and values; with so many it takes no more. Arrow has at most 2 GiB in a column."""
        self.table = table
        self.capacity = capacity
        self.octets = octets
        self._held = 0
        self.taken: list[Delivered] = []
        self.keys: list[ValueColumn] = [ValueColumn(column, capacity) for column in table.key]
        self.columns: list[ValueColumn] = [ValueColumn(column, capacity) for column in table.columns]
        self._by_name: dict[bytes, ValueColumn] = {
            column.name_bytes: values for column, values in zip(table.columns, self.columns, strict=True)
        }
        self._key_types = tuple(column.type for column in table.partition_key)
        self.topics: list[str] = []
        self.partitions: list[int] = []
        self.offsets: list[int] = []
        self.schemas: list[str | None] = []
        self.generations: list[int | None] = []
        self.streams: list[str | None] = []
        self.ops: list[str] = []
        self.tokens: list[int] = []
        self.written: list[int] = []
        self.ttls: list[int | None] = []
        self.expires: list[int | None] = []
        self.digests: list[bytes] = []
        self.deleted: list[list[str]] = []
        self.cells: list[list[dict[str, object]] | None] = []
        self.hosts: list[str] = []
        self.datacenters: list[str] = []
        self.epochs: list[int] = []
        self.segments: list[int] = []
        self.positions: list[int] = []
        self.indexes: list[int] = []
        self.counts: list[int] = []
        self.origins: list[str] = []
        self.durable: list[bool] = []
        self.seen: list[int] = []
        self.flags: list[int] = []
        self._origin: Origin = Origin.LOG
        self._origin_text: str = Origin.LOG.value
        self._op: Op = Op.INSERT
        self._op_text: str = Op.INSERT.value
        self._schema_id: bytes = b""
        self._schema_text: str | None = None

    @property
    def rows(self) -> int:
        """How many changes are in it."""
        return len(self.taken)

    @property
    def full(self) -> bool:
        """Whether it takes no more."""
        return len(self.taken) >= self.capacity or self._held >= self.octets

    def add(self, delivered: Delivered) -> bool:
        """Take one more change; False, and nothing is done, where only its record can say it, or it has none."""
        change, row = delivered.change, len(self.taken)
        source = change.source
        if source is None or change.key is None or change.op in _NOT_ONE_ROW or change.column_deletions:
            return False
        if len(change.digest) != _DIGEST or (change.clustering and len(change.clustering) > len(self.table.clustering)):
            return False
        try:
            times = record_times(change)
            if self._put_key(row, change, change.key) and self._put_cells(row, change, times):
                self._put_rest(delivered, change, source, times)
                self._held += _octets(change, change.key)
                return True
        except Exception:  # noqa: S110 - the record says what it is, or is set aside
            pass
        self._clear(row)
        return False

    def _put_key(self, row: int, change: Change, key: bytes) -> bool:
        index = 0
        for component in split_key(self._key_types, key):
            if not self.keys[index].put(row, component):
                return False
            index += 1
        if change.clustering is not None:
            for value in change.clustering:
                if value is not None and not self.keys[index].put(row, value):
                    return False
                index += 1
        return True

    def _put_cells(self, row: int, change: Change, times: Times) -> bool:
        written, ttl, expires = times
        deleted = NOTHING_DELETED
        own_times: list[dict[str, object]] | None = None
        for cell in change.cells:
            column = self._by_name.get(cell.column.name_bytes)
            if column is None:
                continue  # it was dropped
            if cell.path is not None or column.multicell:
                return False
            if cell.written != written or cell.ttl != ttl or cell.expires != expires:
                if own_times is None:
                    own_times = []
                own_times.append(
                    {"column": column.name, "path": None, "written": cell.written, "ttl": cell.ttl,
                     "expires": cell.expires}
                )  # fmt: skip
            if cell.value is None:
                if deleted is NOTHING_DELETED:
                    deleted = []
                deleted.append(column.name)
            elif not column.put(row, cell.value):
                return False
        self.deleted.append(deleted)
        self.cells.append(own_times)
        return True

    def _put_rest(self, delivered: Delivered, change: Change, source: Source, times: Times) -> None:
        record_id, stream = delivered.record_id, delivered.assignment
        if record_id.schema_id != self._schema_id:
            self._schema_id, self._schema_text = record_id.schema_id, record_id.schema_id.hex()
        if change.op is not self._op:
            self._op, self._op_text = change.op, change.op.value
        self.topics.append(record_id.topic)
        self.partitions.append(record_id.partition)
        self.offsets.append(record_id.offset)
        self.schemas.append(self._schema_text or None)
        self.generations.append(None if stream is None else stream.generation)
        self.streams.append(None if stream is None else stream.stream_id.hex())
        self.ops.append(self._op_text)
        self.tokens.append(change.token)
        self.written.append(times[0])
        self.ttls.append(times[1])
        self.expires.append(times[2])
        self.digests.append(change.digest)
        self._put_source(source)
        self.taken.append(delivered)

    def _put_source(self, source: Source) -> None:
        if source.origin is not self._origin:
            self._origin, self._origin_text = source.origin, source.origin.value
        self.hosts.append(source.host)
        self.datacenters.append(source.datacenter)
        position = source.position
        self.epochs.append(position.epoch)
        self.segments.append(position.segment)
        self.positions.append(position.offset)
        self.indexes.append(source.index)
        self.counts.append(source.count)
        self.origins.append(self._origin_text)
        self.durable.append(source.durable)
        self.seen.append(source.seen)
        self.flags.append(source.flags)

    def _clear(self, row: int) -> None:
        """Have nothing in a row that was begun."""
        for column in self.keys:
            column.values[row] = None
        for column in self.columns:
            column.values[row] = None
        del self.deleted[row:]
        del self.cells[row:]


def _octets(change: Change, key: bytes) -> int:
    """How many bytes its key and values are."""
    size = len(key)
    for value in change.clustering or ():
        if value is not None:
            size += len(value)
    for cell in change.cells:
        if cell.value is not None:
            size += len(cell.value)
    return size


class Ends:
    """Up to where a table has each partition of Kafka, and how far what is new moves that."""

    def __init__(self, stored: Callable[[str, int], int]) -> None:
        """`stored` tells the first offset of a topic's partition that is not there yet."""
        self._stored = stored
        self._known: dict[tuple[str, int], int] = {}
        self.moved: dict[tuple[str, int], int] = {}

    def new(self, record_id: RecordId) -> bool:
        """Whether a record is not there yet."""
        partition = record_id.topic, record_id.partition
        end = self._known.get(partition)
        if end is None:
            end = self._known[partition] = self._stored(record_id.topic, record_id.partition)
        return record_id.offset >= end

    def move(self, record_id: RecordId) -> None:
        """Note that a record goes in."""
        partition = record_id.topic, record_id.partition
        if self.moved.get(partition, 0) <= record_id.offset:
            self.moved[partition] = record_id.offset + 1


def fill(columns: ChangeColumns, changes: Sequence[Delivered], start: int, ends: Ends, rest: list[Delivered]) -> int:
    """Take what is new of these changes, from `start` on, until the columns are full; where that was.

    `rest` gets what is not new, and what only its record can say.
    """
    index, end = start, len(changes)
    while index < end and not columns.full:
        delivered = changes[index]
        index += 1
        if ends.new(delivered.record_id) and columns.add(delivered):
            ends.move(delivered.record_id)
        else:
            rest.append(delivered)
    return index
