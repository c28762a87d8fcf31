"""The row state that images are made from, of one table of one stream: read into partitions, and written back.

All tables of all streams share one state table (`state_store.tables.state_named`), which nobody else reads. A
partition key stands in it behind the 16 bytes of its `scope`. So no DDL follows the source, and a transaction
holds all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.clustering import clustering_key, range_limits
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Delivered, RecordKey
from tailrace_spark.batch.row_image import RowImages, images_of_text, images_text
from tailrace_spark.merge.stored_row import END, ROW, STATIC, RowKey, decode_stored, state_row
from tailrace_spark.rowstate.deletions import NOTHING_DELETED, PartitionState
from tailrace_spark.rowstate.partition import Clustering, ClusteringBytes, Partition, PartitionRow
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.state_store.bulk import insert, overwrite, stage
from tailrace_spark.sinks.state_store.engine import refuses_a_value
from tailrace_spark.sinks.state_store.state_table import KEYS, STATE_COLUMNS, StateTable, chunks, pages
from tailrace_spark.sinks.state_store.tables import MYSQL, MYSQL_TABLE, STATE_BYTES, TOPIC, state_named

IMAGES: Final = sa.MetaData()
_VALUES: Final = "clustering_values"
STATE: Final = state_named(
    "tailrace_images", IMAGES, sa.Column(_VALUES, sa.Text().with_variant(mysql.LONGTEXT(), MYSQL))
)
LONGEST_KEY: Final = 900  # bytes: what every database has room for in an index, together
LONGEST_CLUSTERING: Final = 1_600
Given = Mapping[RecordKey, tuple[RowImages, RowImages]]
"""By position in Kafka: the images of a change, and those of what had expired when it came."""

LONGEST_STREAM: Final = 100
STREAM_NAME: Final = sa.Text().with_variant(sa.String(LONGEST_STREAM), MYSQL)
GIVEN: Final = sa.Table(
    "tailrace_images_given",
    IMAGES,
    sa.Column("stream", STREAM_NAME, primary_key=True),
    sa.Column("topic", TOPIC, primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True),
    sa.Column("offset", sa.BigInteger, primary_key=True),
    sa.Column("images", STATE_BYTES),
    sa.Column("expired", STATE_BYTES),
    **MYSQL_TABLE,
)
_COLUMNS: Final = tuple(column.name for column in GIVEN.columns)


@dataclass(slots=True)
class LoadedPartitions:
    """Partitions as changes are taken into them, and as they were read."""

    partitions: dict[bytes, Partition] = field(default_factory=dict)
    rows: dict[bytes, dict[ClusteringBytes, PartitionRow]] = field(default_factory=dict)
    deletions: dict[bytes, PartitionState] = field(default_factory=dict)


class ScopeState:
    """Reads and writes what is known of one table, in the caller's transaction."""

    def __init__(self, scope: bytes, state: StateTable) -> None:
        self._scope = scope
        self._state = state
        self._is_of_scope = of_scope(scope)

    def load(self, connection: sa.Connection, changes: Sequence[Change]) -> LoadedPartitions:
        """All that these changes can touch: their rows, the rows that deletions reach, what is said of partitions."""
        loaded = LoadedPartitions()
        keys = sorted({change.key for change in changes if change.key is not None})
        heads = self._state.heads(connection, [self._scope + key for key in keys])
        for key in keys:
            head = heads.get(self._scope + key)
            partition = loaded.partitions[key] = Partition()
            if head is not None:
                partition.deletions = head.deletions
                if head.static is not None:
                    partition.rows[None] = PartitionRow((), head.static.state)
        row_keys = {row_key for change in changes for row_key in self._rows_of(change)}
        for (key, clustering), row in self._named(connection, sorted(row_keys)):
            loaded.partitions[key].rows[clustering[len(ROW) :]] = row
        for key, low, high in {area for change in changes for area in _areas(change)}:
            for (_, clustering), row in self._between(connection, self._scope + key, low, high):
                loaded.partitions[key].rows[clustering[len(ROW) :]] = row
        for key, partition in loaded.partitions.items():
            loaded.rows[key], loaded.deletions[key] = dict(partition.rows), partition.deletions
        return loaded

    def save(self, connection: sa.Connection, loaded: LoadedPartitions, now: int) -> None:
        """Write what changed; `now` in seconds since the epoch."""
        rows: dict[RowKey, PartitionRow] = {}
        statics: dict[RowKey, RowState] = {}
        removed: list[RowKey] = []
        for key, partition in loaded.partitions.items():
            loaded_rows, stored = loaded.rows[key], self._scope + key
            if partition.deletions != loaded.deletions[key]:
                self._state.write_deletions(connection, stored, loaded.deletions[key], partition.deletions, now)
            for clustering, row in partition.rows.items():
                if loaded_rows.get(clustering) is not row:
                    if clustering is None:
                        statics[stored, STATIC] = row.state
                    elif row.state.empty:
                        removed.append((stored, ROW + clustering))
                    else:
                        rows[stored, ROW + clustering] = row
            removed += [
                (stored, _clustering(clustering)) for clustering in loaded_rows if clustering not in partition.rows
            ]
        self._state.write(connection, statics, now)
        self._state.remove(connection, removed)
        self._write_rows(connection, rows, now)

    def every(self, connection: sa.Connection) -> Iterator[tuple[bytes, Partition]]:
        """All rows by partition, a part of a large one at a time; nothing is said of deletions.

        The caller may write what it was given.
        """
        c = STATE.c
        named = sa.or_(c.clustering >= ROW, c.clustering == STATIC)
        for stored in pages(connection, self._selected().where(named, self._is_of_scope), c.key, c.clustering):
            for key, some in groupby(stored, key=lambda row: bytes(row.key)):
                rows = {
                    None if row.clustering == STATIC else bytes(row.clustering)[len(ROW) :]: _partition_row(row)
                    for row in some
                }
                yield key[len(self._scope) :], Partition(NOTHING_DELETED, rows)

    def due(
        self, connection: sa.Connection, now: int, owns: Callable[[bytes], bool] | None = None
    ) -> Iterator[tuple[bytes, Partition, int]]:
        """Rows that read otherwise by `now`, in seconds, by expiry alone. From now on they were looked at then.

        Each has its partition key, a partition of its own, and a moment at which it read as when last looked at.
        `owns` says of which partition keys; None: of all.
        """
        c = STATE.c
        query = self._selected().add_columns(c.next_expiry).where(self._is_of_scope, c.next_expiry <= now)
        for due_rows in pages(connection, query, c.next_expiry, c.key, c.clustering):
            rows = {
                (bytes(row.key), bytes(row.clustering)): (_partition_row(row), row.next_expiry - 1)
                for row in due_rows
                if owns is None or owns(bytes(row.key)[len(self._scope) :])
            }
            self._write_rows(connection, {row_key: row for row_key, (row, _) in rows.items()}, now)
            for (key, clustering), (due_row, since) in rows.items():
                clustering_bytes = None if clustering == STATIC else clustering[len(ROW) :]
                yield key[len(self._scope) :], Partition(NOTHING_DELETED, {clustering_bytes: due_row}), since

    def erase(self, connection: sa.Connection, floor: Deletion, now: int) -> None:
        """Take away what a truncation took of all rows, deletions too."""
        c = STATE.c
        connection.execute(STATE.delete().where(self._is_of_scope, c.newest < floor.written))
        for key, partition in self.every(connection):
            loaded = LoadedPartitions({key: partition}, {key: dict(partition.rows)}, {key: partition.deletions})
            partition.erase(floor)
            self.save(connection, loaded, now)

    def _write_rows(self, connection: sa.Connection, rows: Mapping[RowKey, PartitionRow], now: int) -> None:
        written = [
            (*state_row(row_key, rows[row_key].state, now), _values_text(rows[row_key].clustering))
            for row_key in sorted(rows)
        ]
        overwrite(connection, STATE, (*STATE_COLUMNS, _VALUES), written)

    def _rows_of(self, change: Change) -> Iterator[RowKey]:
        if change.key is None or change.static or change.op in (Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.TRUNCATE):
            return
        try:
            yield self._scope + change.key, ROW + clustering_key(change.table, change.clustering or ())
        except (DecodeError, ValueError):
            return  # merging says so, in its turn

    def _selected(self) -> sa.Select[tuple[bytes, bytes, bytes, int, bytes, str]]:
        c = STATE.c
        return sa.select(c.key, c.clustering, c.state, c.generation, c.stream_id, c[_VALUES])

    def _named(
        self, connection: sa.Connection, keys: Sequence[RowKey]
    ) -> Iterator[tuple[tuple[bytes, bytes], PartitionRow]]:
        if not keys:
            return
        stage(connection, KEYS, keys)
        same_row = sa.and_(STATE.c.key == KEYS.c.key, STATE.c.clustering == KEYS.c.clustering)
        for row in connection.execute(self._selected().join_from(KEYS, STATE, same_row)):
            yield (bytes(row.key)[len(self._scope) :], bytes(row.clustering)), _partition_row(row)

    def _between(
        self, connection: sa.Connection, key: bytes, low: bytes, high: bytes
    ) -> Iterator[tuple[tuple[bytes, bytes], PartitionRow]]:
        c = STATE.c
        area = self._selected().where(c.key == key, c.clustering >= low, c.clustering < high)
        for row in connection.execute(area):
            yield (bytes(row.key), bytes(row.clustering)), _partition_row(row)


def of_scope(scope: bytes) -> sa.ColumnElement[bool]:
    """Which rows of the state are those of a scope."""
    above = (int.from_bytes(scope, "big") + 1).to_bytes(len(scope) + 1, "big")[1:]
    return sa.and_(STATE.c.key >= scope, STATE.c.key < above)


def too_long(change: Change) -> bool:
    """Whether a change's key is longer than the state can hold."""
    if len(change.key or b"") > LONGEST_KEY:
        return True
    bounds = [change.start.values, change.end.values] if change.start and change.end else [change.clustering or ()]
    try:
        return any(len(clustering_key(change.table, values)) > LONGEST_CLUSTERING for values in bounds)
    except (DecodeError, ValueError):
        return False  # merging says so, in its turn


def _areas(change: Change) -> Iterable[tuple[bytes, bytes, bytes]]:
    """(partition key, low, high): the rows of the state that a deletion may reach."""
    if change.key is None:
        return []
    if change.op is Op.DELETE_PARTITION:
        return [(change.key, ROW, END)]
    if change.op is Op.DELETE_RANGE and change.start is not None and change.end is not None:
        try:
            low, high = range_limits(change.table, change.start, change.end)
        except (DecodeError, ValueError):
            return []
        return [(change.key, ROW + low, ROW + high)]
    return []


def _clustering(clustering: ClusteringBytes) -> bytes:
    return STATIC if clustering is None else ROW + clustering


def _partition_row(row: sa.Row[tuple[bytes, bytes, bytes, int, bytes, str]]) -> PartitionRow:
    stored = decode_stored(bytes(row.state), row.generation, None if row.stream_id is None else bytes(row.stream_id))
    return PartitionRow(_values_of(row.clustering_values), stored.state)


def _values_text(clustering: Clustering) -> str:
    """A JSON array, as `_values_of` reads it: hexadecimal digits need no escapes."""
    return "[" + ",".join(["null" if value is None else f'"{value.hex()}"' for value in clustering]) + "]"


def _values_of(text: str | None) -> Clustering:
    return tuple([None if value is None else bytes.fromhex(value) for value in json.loads(text or "[]")])


def given_before(
    connection: sa.Connection,
    stream: str,
    changes: Sequence[Delivered],
    batch: int,
    met_in: dict[KafkaPartition, int],
) -> dict[RecordKey, tuple[RowImages, RowImages]]:
    """The images that these changes have had; they come by topic, partition and offset.

    Those of before this batch are forgotten. `met_in` has the batch that each partition was met in last: the first
    change of one in a batch tells what is from before it.
    """
    images: dict[RecordKey, tuple[RowImages, RowImages]] = {}
    c = GIVEN.c
    for (topic, partition), some in groupby(changes, key=lambda change: change.record_id.key[:2]):
        offsets = [delivered.record_id.offset for delivered in some]
        of_partition = sa.and_(c.stream == stream, c.topic == topic, c.partition == partition)
        if met_in.get((topic, partition)) != batch:
            met_in[topic, partition] = batch
            connection.execute(GIVEN.delete().where(of_partition, c.offset < offsets[0]))
        query = sa.select(c.offset, c.images, c.expired)
        for row in connection.execute(query.where(of_partition, c.offset >= min(offsets), c.offset <= max(offsets))):
            images[topic, partition, row.offset] = images_of_text(row.images), images_of_text(row.expired)
    return images


def keep_given(connection: sa.Connection, stream: str, images: Given) -> Given:
    """Keep the images that changes have now, and give them: those of a change that have no room there are not told.

    Nor are those of what had expired, where they have none alone. Raises DBAPIError where one of them has had some.
    """
    try:
        with connection.begin_nested():
            _insert_given(connection, stream, images)
            return images
    except DBAPIError as error:
        if not refuses_a_value(error) or [*images.values()] == [(None, None)]:
            raise
    if len(images) == 1:
        untold = {key: (None, None if of_change is None else expired) for key, (of_change, expired) in images.items()}
        return keep_given(connection, stream, untold)
    halves = chunks(images.items(), -(-len(images) // 2))
    return {key: pair for half in halves for key, pair in keep_given(connection, stream, dict(half)).items()}


def _insert_given(connection: sa.Connection, stream: str, images: Given) -> None:
    rows = [
        (stream, *record_key, images_text(of_change), images_text(expired))
        for record_key, (of_change, expired) in images.items()
    ]
    insert(connection, GIVEN, _COLUMNS, rows)
