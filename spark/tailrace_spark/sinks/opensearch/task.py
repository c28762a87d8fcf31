"""The half of the sink that writes in tasks: each merges its Kafka partition's changes, under the cluster's own check.

A document is written in place of the version that was read, or as new. So attempts beside each other and late ones lose
nothing. Merging what is merged already changes nothing. What is of a whole table is the driver's: indexes, fields,
a table's record, truncations, purging. Each merge reads the record before its rows and behind them, so
what this process knows of it may be stale. After a truncation the cluster refuses what writers of before still send:
see TableIndex.fence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.coalesce import coalesced
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.batch.task_batch import PartitionResult
from tailrace_spark.merge.definitions import newest_definition
from tailrace_spark.merge.purge_horizon import split
from tailrace_spark.merge.row_filter import RowFilters
from tailrace_spark.merge.table_record import define, truncate
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.one_copy import one_copy
from tailrace_spark.sinks.opensearch.client import SearchCluster
from tailrace_spark.sinks.opensearch.index import Indexes, TableIndex
from tailrace_spark.sinks.opensearch.pieces import IndexMerge, PieceWriter
from tailrace_spark.sinks.protocol import DriverOnlyError, UnpreparedError
from tailrace_spark.sinks.table_faults import TableRefusedError
from tailrace_spark.sinks.without_truncations import without_truncations
from tailrace_spark.sinks.worker_cache import WorkerCache


@dataclass(frozen=True, slots=True)
class OpensearchTask:
    """Merges a Kafka partition's records.

    `refused`: why the cluster does not take what definitions of some tables need. `now` is the plan's time, in seconds
    since the epoch: rows are written as they read then. Searches find those that the filters leave. `untruncated` are
    the ids of tables without truncations, as far as the plan knows.
    """

    cluster: SearchCluster = field(repr=False)
    ring_delay: float
    refused: Mapping[UUID, str]
    now: int
    filters: RowFilters = ()
    untruncated: frozenset[UUID] = frozenset()
    letters: Letters = LOGGED

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """As PartitionTask says; where it raises, some of the records may be written."""
        with _WORKERS.borrowed(self.cluster) as worker:
            return worker.write(self, partition, pieces)


class _Worker:
    """A worker process's connections to a cluster, and what it knows of the indexes."""

    def __init__(self, cluster: SearchCluster) -> None:
        self._client = cluster.connect()
        self._settings = cluster.settings
        self._indexes = Indexes(self._client, cluster.settings)

    def write(self, task: OpensearchTask, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        set_aside = list[DeadLetter]()
        summary = Summary()
        writer = PieceWriter(self._indexes, partial(self._follow, task), partial(self._prepared, task))
        try:
            # As the plan knows it: what this process knows may be from before a truncation.
            copied = one_copy(pieces, lambda table: table.id not in task.untruncated)
            for piece in coalesced(without_truncations(copied)):
                summary += writer.write(piece, set_aside)
        except BaseException:
            self._indexes.forget()
            raise
        task.letters.put(set_aside)
        return PartitionResult(partition, summary)

    def close(self) -> None:
        self._client.close()

    def _prepared(self, task: OpensearchTask, changes: Sequence[Delivered]) -> TableIndex | None:
        """The index as the plan has made it ready for these changes; None where the cluster refuses what they need.

        Raises UnpreparedError where it is not ready, DriverOnlyError where a truncation is yet to be brought to an end.
        """
        table, announced = newest_definition(changes)
        index = self._indexes.of(table)
        if index is None or define(index.entry, table, announced) != index.entry:
            if table.id in task.refused:
                return None
            self._indexes.forget(table.id)
            raise UnpreparedError(str(table))
        if index.entry.erased is not None:
            raise DriverOnlyError(f"a truncation of {table} that is not brought to its end")
        return index

    def _follow(self, task: OpensearchTask, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        index = self._prepared(task, changes)
        if index is None:
            raise TableRefusedError(task.refused[changes[0].change.table.id])
        entry, truncated = truncate(index.entry, changes, task.ring_delay)
        if truncated.erased is not None or entry.truncations != index.entry.truncations:
            raise DriverOnlyError(f"truncations of {changes[0].change.table}, which are of all keys")
        in_time, late = split(truncated.left, entry.purged_to)
        refused += late
        if not in_time:
            return 0
        return IndexMerge(self._client, self._settings, index, task.now, task.filters).run(in_time, refused)


_WORKERS: Final = WorkerCache(_Worker)
