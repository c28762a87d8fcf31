"""Current tables by executors: a share is merged with its own buckets' files, and files of it are staged.

A table's buckets are shares of the ring, as Kafka's partitions are. Where these divide the buckets, no other task reads
or replaces the files of a task's buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece
from tailrace_spark.batch.micro_batch import CommitMessage
from tailrace_spark.merge.definitions import newest_definition
from tailrace_spark.merge.row_filter import RowFilters
from tailrace_spark.sinks.lake.current_table import CurrentTable, MergedRows
from tailrace_spark.sinks.lake.followed_tables import FollowedTables, merged_changes
from tailrace_spark.sinks.lake.staging import LakePlan, Staged
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.one_copy import one_copy
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.sinks.table_faults import is_of_table, reason_of, written_by_table
from tailrace_spark.sinks.worker_cache import WorkerCache


@dataclass(frozen=True, slots=True)
class CurrentWriter:
    """Merges and stages a share's changes.

    `partitions` counts those of each topic. What has expired by `now`, in seconds, is gone. Visible are rows that the
    filters leave.
    """

    plan: LakePlan
    partitions: Mapping[str, int] = field(compare=False)
    ring_delay: float
    now: int
    filters: RowFilters = field(default=(), compare=False)
    letters: Letters = field(default=LOGGED, compare=False)

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        staged = list[Staged]()
        with _PLANNED.borrowed(self) as tables:
            stage = partial(self._stage, tables, share, staged)
            summary = written_by_table(one_copy(pieces, tables.truncated), self.letters, stage)
        return CommitMessage(share, summary, tuple(staged))

    def open(self) -> FollowedTables:
        """The tables as the plan has made them ready, for all of its shares in one process."""
        return FollowedTables(self.plan.open(), self.filters)

    def _stage(
        self,
        tables: FollowedTables,
        share: KafkaPartition,
        staged: list[Staged],
        changes: Sequence[Delivered],
        refused: list[DeadLetter],
    ) -> int:
        table, announced = newest_definition(changes)
        followed = tables.require_ready(table, announced)
        require_own_buckets(followed, self.partitions[share[0]])
        try:
            merged = merged_changes(followed, changes, self.ring_delay, self.now, refused)
            self._require_own(share, followed, merged)
            staged += followed.staged(merged)
        except BaseException as error:
            if not is_of_table(error):
                raise
            raise HereOnlyError(f"{followed.name}: {reason_of(error)}") from error
        return merged.count

    def _require_own(self, share: KafkaPartition, followed: CurrentTable, merged: MergedRows) -> None:
        (topic, partition), buckets = share, followed.entry.buckets
        width = buckets // self.partitions[topic]
        touched = set(merged.state["bucket"].unique().to_pylist())
        if not touched <= set(range(partition * width, (partition + 1) * width)):
            raise HereOnlyError(f"partition {partition} of {topic} has keys of other partitions' buckets")


_PLANNED: Final = WorkerCache(CurrentWriter.open, 1)


def require_own_buckets(followed: CurrentTable, partitions: int) -> None:
    """Raises HereOnlyError where a bucket of a table may have rows of several of so many Kafka partitions."""
    if followed.entry.buckets % partitions:
        raise HereOnlyError(
            f"{followed.name} has {followed.entry.buckets} buckets, of which one may have keys of several of "
            f"{partitions} partitions"
        )
