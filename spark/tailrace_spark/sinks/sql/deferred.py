"""Changes of tables that the database refuses for now, kept in it until it takes them: the other tables go on.

Each change is stored under its place in Kafka and its digest, so a redelivered one is stored once. A row that was read
back has its change's place. So may a repair, or a change of a topic that was made again. They are kept beside it. A
change is stored as row state, which merges in any order: deferred changes and later ones may be mixed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from tailrace_schemas.change import Deletion
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered, RecordId
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges, gather
from tailrace_spark.merge.stored_row import PARTITION, RANGE, ROW, STATIC
from tailrace_spark.merge.table_record import TableRecord, decode_record, define, encode_record
from tailrace_spark.rowstate.codec import (
    decode_deletion,
    decode_state,
    encode_deletion,
    encode_state,
    newest,
)
from tailrace_spark.rowstate.deletions import (
    NOTHING_DELETED,
    PartitionState,
    RangeDeletion,
    merge_partitions,
    stronger,
)
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.rowstate.truncation import EVERYTHING
from tailrace_spark.sinks.state_store.bulk import overwrite, upsert
from tailrace_spark.sinks.state_store.tables import CATALOG, MYSQL, MYSQL_TABLE, STATE_BYTES, TOPIC

_ERASURE: Final = b"\x06"
"""What truncations erase of the rows that the table has when it is merged again."""
_NAME: Final = sa.Text().with_variant(sa.String(255), MYSQL)
_LONG: Final = sa.Text().with_variant(mysql.LONGTEXT(), MYSQL)
DEFERRED_TABLES: Final = sa.Table(
    "tailrace_deferred_tables",
    CATALOG,
    sa.Column("table_id", _NAME, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("definition", _LONG, nullable=False),
    **MYSQL_TABLE,
)
DEFERRED: Final = sa.Table(
    "tailrace_deferred_changes",
    CATALOG,
    sa.Column("topic", TOPIC, primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True),
    sa.Column("offset", sa.BigInteger, primary_key=True),
    sa.Column("digest", _NAME, primary_key=True),
    sa.Column("table_id", _NAME, nullable=False, index=True),
    sa.Column("schema_id", sa.Text, nullable=False),
    sa.Column("key", STATE_BYTES, nullable=False),
    sa.Column("clustering", STATE_BYTES, nullable=False),
    sa.Column("clustering_values", _LONG),
    sa.Column("state", STATE_BYTES, nullable=False),
    sa.Column("generation", sa.BigInteger),
    sa.Column("stream_id", STATE_BYTES),
    **MYSQL_TABLE,
)
_KEY_COLUMNS: Final = len(DEFERRED.primary_key)
"""They are a row's first."""


@dataclass(frozen=True, slots=True)
class DeferredChange:
    """One change as it is kept: `at` says of what kind `state` is, as `clustering` of a state table does."""

    record_id: RecordId
    key: bytes
    at: bytes
    clustering: Clustering
    state: bytes
    assignment: Assignment | None

    @property
    def message(self) -> bytes:
        """Nothing: the record's value is not kept, its state is."""
        return b""

    @property
    def digest(self) -> str:
        """The same of equal changes."""
        return blake2b(repr((self.key, self.at, self.state)).encode(), digest_size=16).hexdigest()


def deferred_change(delivered: Delivered) -> DeferredChange:
    """What is kept of a change. Raises DecodeError for one that cannot be merged."""
    batch = gather([delivered])
    change, assignment = delivered.change, delivered.assignment
    record_id = delivered.record_id
    for (key, state_key), row_changes in batch.rows.items():
        encoded = encode_state(row_changes.state)
        return DeferredChange(record_id, key, state_key, row_changes.clustering, encoded, assignment)
    for key, state in batch.statics.items():
        return DeferredChange(record_id, key, STATIC, (), encode_state(state), assignment)
    for key, partition in batch.deletions.items():
        if partition.deletion is not None:
            return DeferredChange(record_id, key, PARTITION, (), encode_deletion(partition.deletion), assignment)
        for range_deletion in partition.ranges:
            encoded = encode_deletion(range_deletion.deletion, range_deletion.end)
            return DeferredChange(record_id, key, RANGE + range_deletion.start, (), encoded, assignment)
    return DeferredChange(record_id, change.key or b"", ROW, (), encode_state(RowState()), None)  # an empty range


def deferred_erasure(record_id: RecordId, erased: Deletion) -> DeferredChange:
    """What is kept of a truncation, which a change of its batch stands for."""
    return DeferredChange(record_id, b"", _ERASURE, (), encode_deletion(erased), None)


def gather_deferred(changes: Iterable[DeferredChange]) -> BatchChanges:
    """As `gather`, of what was kept; what truncations erase is taken out before."""
    batch = BatchChanges()
    for deferred in changes:
        if deferred.at == _ERASURE:
            continue
        if deferred.at == PARTITION or deferred.at.startswith(RANGE):
            deletions = _partition(deferred)
            batch.deletions[deferred.key] = merge_partitions(
                batch.deletions.get(deferred.key, NOTHING_DELETED), deletions
            )
        else:
            state = decode_state(deferred.state)
            state.assign(deferred.assignment)
            _add(batch, deferred, state)
    return batch


def _partition(deferred: DeferredChange) -> PartitionState:
    deletion, end = decode_deletion(deferred.state)
    if deferred.at == PARTITION:
        return PartitionState(deletion, assignment=deferred.assignment)
    return PartitionState(None, (RangeDeletion(deferred.at[len(RANGE) :], end, deletion, deferred.assignment),))


def _add(batch: BatchChanges, deferred: DeferredChange, state: RowState) -> None:
    if state.empty:
        return
    if deferred.at == STATIC:
        existing = batch.statics.setdefault(deferred.key, state)
    else:
        existing = batch.rows.setdefault(
            (deferred.key, deferred.at), RowChanges(deferred.clustering, None, state)
        ).state
    if existing is not state:
        existing.absorb(state)


class DeferredTables:
    """Keeps and gives back, in the caller's transaction."""

    def waiting(self, connection: sa.Connection) -> dict[UUID, TableRecord]:
        """The records of the tables of which changes are kept."""
        rows = connection.execute(sa.select(DEFERRED_TABLES.c.table_id, DEFERRED_TABLES.c.definition))
        return {UUID(table_id): decode_record(text)[0] for table_id, text in rows}

    def keep(
        self,
        connection: sa.Connection,
        table: Table,
        announced: int,
        changes: Sequence[DeferredChange],
        why: str,
        now: int,
    ) -> int:
        """Keep changes of a table, and why; how many. `now` in seconds since the epoch."""
        names = [column.name for column in DEFERRED_TABLES.columns]
        row = (str(table.id), str(table), why, now, encode_record(TableRecord(table, announced)))
        newer = {"name": str(table), "reason": why}
        # Tasks keep changes of one table at once. The second one waits here, and reads what the first one has kept.
        upsert(connection, DEFERRED_TABLES, dict(zip(names, row, strict=True)), newer)
        of_table = DEFERRED_TABLES.c.table_id == str(table.id)
        existing = connection.execute(sa.select(DEFERRED_TABLES.c.definition).where(of_table)).scalar_one()
        definition = encode_record(define(decode_record(existing)[0], table, announced))
        connection.execute(DEFERRED_TABLES.update().where(of_table).values(definition=definition))
        rows = {row[:_KEY_COLUMNS]: row for row in (_row(table, change) for change in changes)}
        overwrite(connection, DEFERRED, [column.name for column in DEFERRED.columns], list(rows.values()))
        return len(changes)

    def kept(self, connection: sa.Connection, table_id: UUID, size: int) -> Iterator[list[DeferredChange]]:
        """The changes that are kept of a table, some at a time; each is forgotten once the next are asked for."""
        query = (
            sa.select(DEFERRED).where(DEFERRED.c.table_id == str(table_id)).order_by(*DEFERRED.primary_key).limit(size)
        )
        while rows := connection.execute(query).all():
            yield [_deferred_of(row) for row in rows]
            _delete(connection, rows)

    def erase(self, connection: sa.Connection, table_id: UUID, erased: Deletion) -> None:
        """Forget what a truncation took of the changes that are kept."""
        of_table = DEFERRED.c.table_id == str(table_id)
        if erased == EVERYTHING:
            connection.execute(DEFERRED.delete().where(of_table))
            return
        rows = connection.execute(sa.select(DEFERRED).where(of_table)).all()
        _delete(connection, [row for row in rows if _newest(_deferred_of(row)) <= erased.written])

    def erasure(self, connection: sa.Connection, table_id: UUID) -> Deletion | None:
        """What truncations erase of the table's rows, once it is merged again; None: nothing."""
        c = DEFERRED.c
        query = sa.select(c.state).where(c.table_id == str(table_id), c.clustering == _ERASURE)
        erased: Deletion | None = None
        for row in connection.execute(query):
            erased = stronger(erased, decode_deletion(bytes(row.state))[0])
        return erased

    def forget(self, connection: sa.Connection, table_id: UUID) -> None:
        """Nothing of what waits of this table is wanted any more."""
        connection.execute(DEFERRED.delete().where(DEFERRED.c.table_id == str(table_id)))
        self.release(connection, table_id)

    def release(self, connection: sa.Connection, table_id: UUID) -> None:
        """Nothing of this table waits any more."""
        connection.execute(DEFERRED_TABLES.delete().where(DEFERRED_TABLES.c.table_id == str(table_id)))


def _delete(connection: sa.Connection, rows: Sequence[sa.Row[tuple[object, ...]]]) -> None:
    if rows:
        names = [f"of_{column.name}" for column in DEFERRED.primary_key]
        key = (column == sa.bindparam(name) for column, name in zip(DEFERRED.primary_key, names, strict=True))
        connection.execute(DEFERRED.delete().where(*key), [dict(zip(names, row, strict=False)) for row in rows])


def _newest(deferred: DeferredChange) -> int:
    """The newest write time of what is kept, in microseconds."""
    if deferred.at in (_ERASURE, PARTITION) or deferred.at.startswith(RANGE):
        return decode_deletion(deferred.state)[0].written
    return newest(decode_state(deferred.state))


def _row(table: Table, deferred: DeferredChange) -> tuple[object, ...]:
    values = json.dumps([None if value is None else value.hex() for value in deferred.clustering])
    generation, stream_id = deferred.assignment or (None, None)
    record_id = deferred.record_id
    key = (record_id.topic, record_id.partition, record_id.offset, deferred.digest)
    state = (deferred.key, deferred.at, values, deferred.state, generation, stream_id)
    return (*key, str(table.id), record_id.schema_id.hex(), *state)


def _deferred_of(row: sa.Row[tuple[object, ...]]) -> DeferredChange:
    record_id = RecordId(row.topic, row.partition, row.offset, bytes.fromhex(row.schema_id))
    clustering = tuple(None if value is None else bytes.fromhex(value) for value in json.loads(row.clustering_values))
    assignment = None if row.stream_id is None else Assignment(row.generation, bytes(row.stream_id))
    state_key = bytes(row.clustering)
    return DeferredChange(record_id, bytes(row.key), state_key, clustering, bytes(row.state), assignment)
