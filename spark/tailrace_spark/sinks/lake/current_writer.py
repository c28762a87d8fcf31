"""Current tables by executors: a share is merged with its own buckets' files, and files of it are staged.

A table's buckets are shares of the ring, as Kafka's partitions are. Where these divide the buckets, no other task reads
or replaces the files of a task's buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Final
from uuid import UUID

from tailrace_common.sections.template import directory_name
from tailrace_schemas.change import Op
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, DeadLetter, Delivered, Piece
from tailrace_spark.batch.pieces import gc_paused, one_copy
from tailrace_spark.merge.batch_changes import gather
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.merge.partition import mergeable
from tailrace_spark.merge.table_record import define, newest_definition, split, truncate
from tailrace_spark.sinks.lake.current_table import CurrentTable, MergedRows
from tailrace_spark.sinks.lake.staging import LakePlan, Staged
from tailrace_spark.sinks.lake.state import WORTH_A_PART, StateReading, TableEntry, read_now, reading
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.lake.visible_rows import LakeRowRenderer
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.sinks.table_faults import TableRefusedError, is_of_table, reason_of, written_by_table
from tailrace_spark.sinks.worker_cache import WorkerCache


class FollowedTables:
    """The current tables of a store, each opened once."""

    def __init__(self, store: LakeStore, filters: RowFilters) -> None:
        """They show the rows that the filters leave. `store` opens each table once (staging.opened_once)."""
        self.store = store
        self._filters = filters
        self._tables: dict[UUID, CurrentTable] = {}

    def find(self, table: Table) -> CurrentTable:
        """What follows a source table, or is to: under the first of NAME, NAME-2, ... that is its."""
        followed = self._tables.get(table.id)
        if followed is None:
            followed = self._tables[table.id] = self._find(table)
        return followed

    def _find(self, table: Table) -> CurrentTable:
        base = directory_name(table.keyspace, table.name)
        for suffix in count(1):
            name = base if suffix == 1 else f"{base}-{suffix}"
            followed = CurrentTable.open(self.store, name, self._filters)
            if followed is None:
                if self.store.open(name) is not None:
                    raise TableRefusedError(
                        f"{self.store.uri(name)} is a table of another kind: move it away, or give this sink another "
                        "path"
                    )
                return CurrentTable.to_make(self.store, name, table, self._filters)
            if followed.entry.definition.id == table.id:
                return followed
        raise AssertionError("numbers do not end")

    def ready(self, table: Table, announced: int, buckets: int, now: int) -> CurrentTable:
        """What follows a source table, as a definition needs it: it may be made, in so many buckets."""
        followed = self.find(table)
        entry = define(followed.entry, table, announced)
        if followed.new:
            entry = replace(entry, buckets=buckets)
        ready = self._tables[table.id] = followed.prepared(with_names(entry), now)
        return ready

    def require_ready(self, table: Table, announced: int) -> CurrentTable:
        """What follows a source table, for shares. Raises HereOnlyError where it is not as a definition needs it."""
        followed = self._found(table)
        if with_names(define(followed.entry, table, announced)) != followed.entry or not followed.is_shown:
            raise HereOnlyError(f"{followed.name} is another than it was made ready to be")
        return followed

    def truncated(self, table: Table) -> bool:
        """Whether a source table has truncations. Raises HereOnlyError where nothing can follow it."""
        return bool(self._found(table).entry.truncations.statements)

    def _found(self, table: Table) -> CurrentTable:
        try:
            return self.find(table)
        except TableRefusedError as error:
            raise HereOnlyError(str(error)) from error

    def close(self) -> None:
        """Nothing is kept open."""


def merged_changes(
    followed: CurrentTable,
    changes: Sequence[Delivered],
    ring_delay: float,
    now: int,
    refused: list[DeadLetter],
    worth_a_part: int = WORTH_A_PART,
) -> MergedRows:
    """What changes of a table make of it; those that it cannot take are `refused`. Both times in seconds."""
    entry, truncated = truncate(followed.entry, changes, ring_delay)
    changes, late = split(truncated.left, entry.purged_to)
    refused += late

    def merged(applied: Sequence[Delivered], stored: StateReading) -> MergedRows:
        return followed.merged(gather(applied), entry, truncated.erased, now, stored)

    with gc_paused():
        try:
            with reading(followed.state, _keys_of(changes), entry.buckets, worth_a_part) as stored:
                return merged(changes, stored)
        except DecodeError:
            good = mergeable(changes, LakeRowRenderer(entry.definition, entry.buckets, entry.names), refused)
            return merged(good, read_now(followed.state, _keys_of(good), entry.buckets))


def with_names(entry: TableEntry) -> TableEntry:
    """With what the table calls its columns and fields now, by what it called them before."""
    return replace(entry, names=LakeRowRenderer(entry.definition, entry.buckets, entry.names).names)


def _keys_of(changes: Sequence[Delivered]) -> set[bytes]:
    """The keys of the partitions that changes are of."""
    return {
        delivered.change.key
        for delivered in changes
        if delivered.change.key is not None and delivered.change.op is not Op.TRUNCATE
    }


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
