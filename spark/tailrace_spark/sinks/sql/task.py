"""The SQL sink's half on executors: a transaction for each Kafka partition of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tailrace_common.secrets import shown_database
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.coalesce import coalesced
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.gc_pause import gc_paused
from tailrace_spark.batch.prefetch import prefetched
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.merge.row_filter import RowFilters
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.one_copy import one_copy
from tailrace_spark.sinks.sql.catalog import Catalog, OnDrop
from tailrace_spark.sinks.sql.piece_merges import PieceMerges, TableWait
from tailrace_spark.sinks.sql.table_merges import TableMerges
from tailrace_spark.sinks.sql.transaction import transaction
from tailrace_spark.sinks.state_store.engine import open_engine
from tailrace_spark.sinks.state_store.fences import Fence, begin_partition
from tailrace_spark.sinks.without_truncations import without_truncations
from tailrace_spark.sinks.worker_cache import WorkerCache

_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Database:
    """Where a sink writes, as SqlSink gets it. Equal ones share a connection of a worker process."""

    url: str = field(repr=False)
    table: str
    on_drop: OnDrop
    ring_delay: float
    filters: RowFilters = ()
    letters: Letters = LOGGED


@dataclass(frozen=True, slots=True)
class SqlDetail:
    """What a task leaves to the driver: refused tables, and why."""

    refused: Mapping[UUID, str]


@dataclass(frozen=True, slots=True)
class SqlTask:
    """Merges a Kafka partition's records in one transaction, which its row of `tailrace_partitions` belongs to.

    Truncations are the driver's, since they are of all partitions. `refused` are tables whose changes are deferred.
    `now` is the plan's time, in seconds since the epoch: rows are written as they read then.
    """

    database: Database
    batch: TaskBatch
    fence: Fence
    refused: Mapping[UUID, str]
    now: float

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """As PartitionTask says."""
        with _WORKERS.borrowed(self.database) as worker:
            return worker.write(self, partition, pieces)


class _Worker:
    """A worker process's connections to a database, and what it knows of the database."""

    def __init__(self, database: Database) -> None:
        self._location = shown_database(database.url)
        self._engine = open_engine(database.url)
        dialect: str = self._engine.dialect.name
        self._catalog = Catalog(self._engine.dialect, database.table, database.on_drop, alters=False)
        self._now = 0.0
        merges = TableMerges(self._catalog, dialect, database.ring_delay, self._clock)
        merges.filter_rows(database.filters)
        self._pieces = PieceMerges(merges, dialect, self._clock, time.sleep, database.letters)

    def write(self, task: SqlTask, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        self._pieces.waits = {table_id: TableWait(why, _NEVER) for table_id, why in task.refused.items()}
        self._now = task.now
        summary = Summary()
        try:
            with gc_paused(), transaction(self._engine, self._location, "the batch will be tried again") as connection:
                begin_partition(connection, task.batch, partition)
                self._pieces.forget()
                pieces = one_copy(pieces, self._pieces.merges.truncated(connection))
                for piece in prefetched(map(self._pieces.read, coalesced(without_truncations(pieces)))):
                    summary += self._pieces.merge(connection, piece)
                detail = self._detail(task)
                task.fence.require(connection)
        except BaseException:
            self._pieces.forget()
            raise
        return PartitionResult(partition, summary, detail)

    def close(self) -> None:
        """End its connections."""
        self._engine.dispose()

    def _detail(self, task: SqlTask) -> SqlDetail:
        refused = {table_id: wait.why for table_id, wait in self._pieces.waits.items() if table_id not in task.refused}
        return SqlDetail(refused)

    def _clock(self) -> float:
        return self._now


_WORKERS: Final = WorkerCache(_Worker)
