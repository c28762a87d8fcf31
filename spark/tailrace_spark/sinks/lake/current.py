"""The sink of a lake's current tables: they read as SELECT reads the source, merged as Cassandra merges.

For a source table there is KEYSPACE.NAME, which users read, and KEYSPACE.NAME-state: see `current_table`.

A table's buckets are shares of the ring, as Kafka's partitions are. Where these divide the buckets, no other task reads
or replaces the files of a task's buckets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import lcm
from typing import Final
from uuid import UUID

from tailrace_common.sections.template import directory_name
from tailrace_schemas.change import Op
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition, topic_component
from tailrace_spark.batch.delivery import (
    CommitMessage,
    DeadLetter,
    Delivered,
    MicroBatch,
    Piece,
    Summary,
    partition_counts,
)
from tailrace_spark.batch.pieces import gc_paused, one_copy
from tailrace_spark.merge.batch_changes import gather
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.merge.partition import mergeable
from tailrace_spark.merge.table_record import define, newest_definition, split, truncate
from tailrace_spark.sinks.lake.current_table import STATE_SUFFIX, CurrentTable, MergedRows
from tailrace_spark.sinks.lake.staging import LakePlan, Staged, commit, opened_once, staged_by
from tailrace_spark.sinks.lake.state import WORTH_A_PART, StateReading, TableEntry, read_now, reading
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.lake.visible_rows import LakeRowRenderer
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import (
    BatchWrite,
    Capabilities,
    Definitions,
    Follows,
    HereOnlyError,
    Needed,
    follows_all,
    here,
    nothing_needed,
    summed,
)
from tailrace_spark.sinks.table_faults import (
    TableRefusedError,
    TruncationsAside,
    is_of_table,
    reason_of,
    written_by_table,
)
from tailrace_spark.sinks.worker_cache import WorkerCache

log = logging.getLogger("tailrace_spark")

_PURGED_AT_ONCE: Final = 20_000  # states of a table in one commit
_PURGES_IN_A_HORIZON: Final = 100
_MOST_BUCKETS: Final = 4096


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


class LakeCurrent:
    """Follows source tables; see `Sink` and `SweepingSink` for the promises.

    When a batch fails, some of its tables may be written and others not. The batch is then written again, which
    changes nothing in the former.
    """

    def __init__(
        self,
        store: LakeStore,
        buckets: int = 16,
        *,
        ring_delay: float = 0.0,
        sweep_seconds: float = 60.0,
        merge_horizon: int | None = None,
        purge_limit: int = _PURGED_AT_ONCE,
        worth_a_part: int = WORTH_A_PART,
        clock: Callable[[], float] = time.time,
        letters: Letters = LOGGED,
    ) -> None:
        """`buckets`: of tables that are made. `ring_delay`: see SqlSink. What expires is looked for so often.

        `merge_horizon`: so many seconds after it was written, and came, a deletion is forgotten; None: never.
        `purge_limit`: so many states of a table in one commit. `worth_a_part`: see `reading`. `clock`
        tells the seconds since the epoch by which what expires is gone.
        """
        self._store = store
        self._letters = letters
        self._buckets = buckets
        self._ring_delay = ring_delay
        self._sweep_seconds = sweep_seconds
        self._clock = clock
        self._merge_horizon = merge_horizon
        self._purge_limit = purge_limit
        self._worth_a_part = worth_a_part
        self._swept = self._purged = 0.0
        self._filters: RowFilters = ()
        self._follows: Follows = follows_all
        self._truncations = TruncationsAside()

    def reach(self) -> None:
        """See that the root may be written."""
        self._store.reach()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(sweeping=self, following=self, filtering=self, executors=True)

    def follow(self, follows: Follows) -> None:
        """As FollowingSink says."""
        self._follows = follows

    def filter_rows(self, filters: RowFilters) -> None:
        """As RowFilteringSink says."""
        self._filters = filters

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """As Sink says. No file of a share counts before a commit, and none is made behind another one's: there is
        nothing to fence."""
        return here(self._merge) if batch.here else BatchWrite(self._writer(batch, needed()), self._commit)

    def _tables(self) -> FollowedTables:
        return FollowedTables(opened_once(self._store), self._filters)

    def _merge(self, pieces: Iterable[Piece]) -> Summary:
        write = partial(self._table, self._tables())
        return written_by_table(pieces, self._letters, write, self._truncations)

    def _table(self, tables: FollowedTables, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        table, announced = newest_definition(changes)
        now = int(self._clock())
        followed = tables.ready(table, announced, self._buckets, now)
        merged = merged_changes(followed, changes, self._ring_delay, now, refused, self._worth_a_part)
        commit(tables.store, followed.staged(merged, here=True))
        return merged.count

    def _writer(self, batch: MicroBatch, definitions: Definitions) -> CurrentWriter:
        """Raises HereOnlyError where shares of one of the tables cannot be written apart."""
        partitions, now, tables = partition_counts(batch.ends), int(self._clock()), self._tables()
        for announced, table in definitions:
            self._truncations.require_none(table)
            counts = _counts_of(table, partitions)
            buckets = _multiple(self._buckets, lcm(*(counts or partitions.values())))
            try:
                followed = tables.find(table)
                for count in () if followed.new else counts:
                    require_own_buckets(followed, count)
                tables.ready(table, announced, buckets, now)
            except BaseException as error:
                if not is_of_table(error):
                    raise
                raise _only_here(str(table), error) from error
        return CurrentWriter(LakePlan.of(self._store), partitions, self._ring_delay, now, self._filters, self._letters)

    def _commit(self, messages: Sequence[CommitMessage]) -> Summary:
        """One commit of each table that has changes. What a crash leaves between both is shown by the next plan."""
        commit(self._store, staged_by(messages), _only_here)
        return summed(messages)

    def sweep(self) -> int:
        """Show again what has expired; how many rows that changed.

        It is looked for every `sweep_seconds`: each time is a commit of the tables that have some.
        """
        if self._clock() < self._swept + self._sweep_seconds:
            return 0
        self._swept = self._clock()
        swept, until = 0, self._purge_until()
        store = opened_once(self._store)
        for name in store.names():
            if name.endswith(STATE_SUFFIX):
                followed = CurrentTable.open(store, name.removesuffix(STATE_SUFFIX), self._filters)
                if followed is not None and self._follows(followed.entry.definition):
                    swept += self._sweep(followed, until)
        return swept

    def _purge_until(self) -> int | None:
        """Up to which second this sweep forgets deletions; None: it forgets none, since that reads whole states."""
        horizon, now = self._merge_horizon, self._clock()
        if horizon is None or now < self._purged + horizon / _PURGES_IN_A_HORIZON:
            return None
        self._purged = now
        return int(now) - horizon

    def _sweep(self, followed: CurrentTable, until: int | None) -> int:
        now = int(self._clock())
        try:
            swept = followed.prepared(followed.entry, now).sweep(now)
            reopened = None if until is None else CurrentTable.open(followed.store, followed.name, followed.filters)
            if until is not None and reopened is not None:
                purged = reopened.purge(until, now, self._purge_limit)
                if purged == self._purge_limit:
                    self._purged = 0.0  # there may be more, for the next sweep
                log.debug("%s: purged %d stored rows", followed.name, purged)
            return swept
        except BaseException as error:
            if not is_of_table(error):
                raise
            log.warning("%s: could not remove expired rows; will retry: %s", followed.name, reason_of(error))
            return 0

    def close(self) -> None:
        """Nothing is kept open between batches."""


def _only_here(name: str, error: BaseException) -> HereOnlyError:
    return HereOnlyError(f"{name}: {reason_of(error)}")


def _counts_of(table: Table, partitions: Mapping[str, int]) -> list[int]:
    """The partitions of a table's topic; none where the topic's name is shortened (contracts.md 4)."""
    name = f".{topic_component(table.keyspace)}.{topic_component(table.name)}"
    return [count for topic, count in partitions.items() if topic.endswith(name)]


def _multiple(least: int, of: int) -> int:
    """The smallest multiple from `least` on; `least` where it would be too many buckets."""
    buckets = -(-least // of) * of
    return buckets if buckets <= _MOST_BUCKETS else least
