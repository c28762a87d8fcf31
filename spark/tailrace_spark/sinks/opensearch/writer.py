"""The shares that executors write: each merges its Kafka partition's changes, under the cluster's own check.

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
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.batch.micro_batch import CommitMessage
from tailrace_spark.merge.definitions import newest_definition
from tailrace_spark.merge.purge_horizon import split
from tailrace_spark.merge.row_filter import RowFilters
from tailrace_spark.merge.table_record import define, truncate
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.one_copy import one_copy
from tailrace_spark.sinks.opensearch.client import SearchCluster
from tailrace_spark.sinks.opensearch.index import Indexes, TableIndex
from tailrace_spark.sinks.opensearch.pieces import IndexMerge, PieceWriter
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.sinks.table_faults import TableRefusedError
from tailrace_spark.sinks.worker_cache import WorkerCache


@dataclass(frozen=True, slots=True)
class OpensearchWriter:
    """Merges a share.

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

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says; where it raises, some of the records may be written."""
        with _WORKERS.borrowed(self.cluster) as worker:
            return CommitMessage(share, worker.write(self, pieces))


class _Worker:
    """A worker process's connections to a cluster, and what it knows of the indexes."""

    def __init__(self, cluster: SearchCluster) -> None:
        self._client = cluster.connect()
        self._settings = cluster.settings
        self._indexes = Indexes(self._client, cluster.settings)

    def write(self, plan: OpensearchWriter, pieces: Iterable[Piece]) -> Summary:
        follow, prepare = partial(self._follow, plan), partial(self._prepared, plan)
        # As the plan knows it: what this process knows may be from before a truncation.
        copied = one_copy(pieces, lambda table: table.id not in plan.untruncated)
        return PieceWriter(self._indexes, plan.letters, follow, prepare).write(copied)

    def close(self) -> None:
        self._client.close()

    def _prepared(self, plan: OpensearchWriter, changes: Sequence[Delivered]) -> TableIndex | None:
        """The index as the plan has made it ready for these changes; None where the cluster refuses what they need.

        Raises HereOnlyError where it is not ready, and where a truncation is yet to be brought to an end.
        """
        table, announced = newest_definition(changes)
        index = self._indexes.of(table)
        if index is None or define(index.entry, table, announced) != index.entry:
            if table.id in plan.refused:
                return None
            self._indexes.forget(table.id)
            raise HereOnlyError(f"{table}: its index is another than it was made ready to be")
        if index.entry.erased is not None:
            raise HereOnlyError(f"a truncation of {table} that is not brought to its end")
        return index

    def _follow(self, plan: OpensearchWriter, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        index = self._prepared(plan, changes)
        if index is None:
            raise TableRefusedError(plan.refused[changes[0].change.table.id])
        entry, truncated = truncate(index.entry, changes, plan.ring_delay)
        in_time, late = split(truncated.left, entry.purged_to)
        refused += late
        if not in_time:
            return 0
        return IndexMerge(self._client, self._settings, index, plan.now, plan.filters).run(in_time, refused)


_WORKERS: Final = WorkerCache(_Worker)
