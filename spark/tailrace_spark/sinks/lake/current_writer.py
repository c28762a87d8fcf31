"""Current tables by executors: a share is merged with its own buckets' files, and files of it are staged.

A table's buckets are shares of the ring, as Kafka's partitions are. Where these divide the buckets, no other task reads
or replaces the files of a task's buckets. Nothing counts before the driver's commit, which takes no files that were
made of another state than the table then has: see `current_shares`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.batch.micro_batch import CommitMessage
from tailrace_spark.merge.batch_changes import BatchChanges
from tailrace_spark.merge.by_table import group_by_table
from tailrace_spark.merge.definitions import newest_definition
from tailrace_spark.merge.purge_horizon import split
from tailrace_spark.merge.row_filter import RowFilters
from tailrace_spark.merge.table_record import define, truncate
from tailrace_spark.sinks.arrow.types import conform
from tailrace_spark.sinks.lake.current_table import (
    NAMED_BY,
    CurrentTable,
    MergedRows,
    marked_rows,
    state_name,
    without_gone,
)
from tailrace_spark.sinks.lake.followed_tables import FollowedTables, merged_with, with_names
from tailrace_spark.sinks.lake.opened_tables import OpenedTables
from tailrace_spark.sinks.lake.state import BATCH, IDENTITY
from tailrace_spark.sinks.lake.state_reader import WORTH_A_PART, StateReading
from tailrace_spark.sinks.lake.store import LakeStore, LakeTable
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.one_copy import one_copy
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.sinks.shared_directory import require_same
from tailrace_spark.sinks.table_faults import TableRefusedError, is_of_table, reason_of, refusals_of


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """Files that a share has staged for one table of the lake, which `identity` names, and those that they replace."""

    identity: str
    files: tuple[Any, ...] = ()
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What a share has staged of one current table, whose state and visible table both had this `batch`."""

    name: str
    batch: int
    state: StagedFiles
    visible: StagedFiles


@dataclass(frozen=True, slots=True)
class CurrentWriter:
    """Merges and stages a share's changes.

    `partitions` counts those of each topic. What has expired by `now`, in seconds, is gone. `mark` is that of the
    store's directory, where it has one. Visible are rows that the filters leave.
    """

    store: LakeStore = field(repr=False)
    plan: str
    partitions: Mapping[str, int]
    ring_delay: float
    now: int
    mark: str | None = None
    filters: RowFilters = ()
    letters: Letters = LOGGED

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        if self.store.directory is not None and self.mark is not None:
            require_same(self.store.directory, self.mark)
        by_table: dict[UUID, list[Delivered]] = {}
        letters: list[DeadLetter] = []
        tables = _PLANNED.tables(self)
        for piece in one_copy(pieces, tables.truncated):
            letters += piece.dead_letters
            group_by_table(piece.changes, by_table)
        staging = [_Staging(self, share, tables, changes) for changes in by_table.values()]
        for table in staging:
            table.require_prepared()  # of all tables, before anything is staged
        staged, summary = list[StagedRows](), Summary()
        for table in staging:
            summary += table.stage(staged, letters)
        self.letters.put(letters)
        summary += Summary(dead_letters=len(letters))
        return CommitMessage(share, summary, tuple(staged))


class _PlannedTables:
    """The tables as shares of one plan see them in one process, each opened once."""

    def __init__(self, store: LakeStore, filters: RowFilters) -> None:
        opened: Any = OpenedTables(store)
        self.store: LakeStore = opened
        self._followed = FollowedTables(opened, filters)
        self._tables: dict[UUID, CurrentTable] = {}

    def find(self, table: Table) -> CurrentTable:
        """What follows a source table. Raises HereOnlyError where nothing does."""
        followed = self._tables.get(table.id)
        if followed is None:
            try:
                _, followed = self._followed.find(table)
            except TableRefusedError as error:
                raise HereOnlyError(str(error)) from error
            if followed is None:
                raise _unprepared(str(table))
            self._tables[table.id] = followed
        return followed

    def truncated(self, table: Table) -> bool:
        """Whether a source table has truncations; raises as `find`."""
        return bool(self.find(table).entry.truncations.statements)


class _Planned:
    """What a worker process knows of the newest plan that it had a share of."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._plan: str | None = None
        self._tables: _PlannedTables | None = None

    def tables(self, writer: CurrentWriter) -> _PlannedTables:
        """The tables of a writer's plan, which other shares of the plan have used."""
        with self._lock:
            if self._tables is None or self._plan != writer.plan:
                self._tables, self._plan = _PlannedTables(writer.store, writer.filters), writer.plan
            return self._tables


_PLANNED: Final = _Planned()


class _Staging:
    """The changes of one table on their way into files."""

    def __init__(
        self, writer: CurrentWriter, partition: KafkaPartition, tables: _PlannedTables, changes: Sequence[Delivered]
    ) -> None:
        self._writer = writer
        self._partition = partition
        self._store = tables.store
        self._changes = changes
        self._table, self._announced = newest_definition(changes)
        self._followed = tables.find(self._table)
        self._visible = self._store.open(self._followed.name)

    def require_prepared(self) -> None:
        """Raises HereOnlyError where the tables are not as these changes need."""
        followed = self._followed
        require_own_buckets(followed, self._writer.partitions[self._partition[0]])
        entry = define(followed.entry, self._table, self._announced)
        noted = None if self._visible is None else self._visible.version_of(BATCH)
        if with_names(entry) != followed.entry or noted != followed.state.batch:
            raise _unprepared(followed.name)

    def stage(self, staged: list[StagedRows], letters: list[DeadLetter]) -> Summary:
        """Merge the changes, and stage what comes of them; what cannot be merged is added to `letters`."""
        try:
            return self._stage(staged, letters)
        except BaseException as error:
            if not is_of_table(error):
                raise
            raise HereOnlyError(f"{self._followed.name}: {reason_of(error)}") from error

    def _stage(self, staged: list[StagedRows], letters: list[DeadLetter]) -> Summary:
        followed, refused = self._followed, list[DeadLetter]()
        entry, truncated = truncate(followed.entry, self._changes, self._writer.ring_delay)
        changes, late = split(truncated.left, entry.purged_to)
        refused += late

        def merge(batch: BatchChanges, stored: StateReading) -> MergedRows:
            return followed.merged(batch, entry, None, self._writer.now, stored)

        merged = merged_with(followed, entry, changes, refused, WORTH_A_PART, merge)
        if len(merged.state):
            self._require_own(merged)
            staged.append(self._files(merged))
        letters += refused
        count = len(self._changes) - len(refused)
        return Summary(count, merged.count, refused=refusals_of(self._changes, refused))

    def _require_own(self, merged: MergedRows) -> None:
        (topic, partition), buckets = self._partition, self._followed.entry.buckets
        share = buckets // self._writer.partitions[topic]
        touched = set(merged.state["bucket"].unique().to_pylist())
        if not touched <= set(range(partition * share, (partition + 1) * share)):
            raise HereOnlyError(f"partition {partition} of {topic} has keys of other partitions' buckets")

    def _files(self, merged: MergedRows) -> StagedRows:
        followed, changes, visible = self._followed, merged.changes, self._visible
        state = followed.state.stored
        if state is None or visible is None:
            raise _unprepared(followed.name)
        states = state_name(followed.name)
        if changes.new:
            stored = self._added(states, state, without_gone(merged.state).to_batches())
            visible_files = self._added(followed.name, visible, changes.rows)
        else:
            stored = self._merged(states, state, merged.state, IDENTITY)
            rows = marked_rows(merged.renderer, changes, followed.entry.buckets)
            visible_files = self._merged(followed.name, visible, rows, NAMED_BY)
        return StagedRows(followed.name, followed.state.batch, stored, visible_files)

    def _added(self, name: str, table: LakeTable, batches: Sequence[Any]) -> StagedFiles:
        rows = pa.RecordBatchReader.from_batches(table.schema, (conform(batch, table.schema) for batch in batches))
        return StagedFiles(table.identity, tuple(self._store.stage(name, table, rows)))

    def _merged(self, name: str, table: LakeTable, rows: Any, named_by: Sequence[str]) -> StagedFiles:
        if not len(rows):
            return StagedFiles(table.identity)
        files, replaced = self._store.stage_merge(name, table, rows, named_by)
        return StagedFiles(table.identity, tuple(files), tuple(replaced))


def _unprepared(name: str) -> HereOnlyError:
    return HereOnlyError(f"{name} is another than it was made ready to be")


def require_own_buckets(followed: CurrentTable, partitions: int) -> None:
    """Raises HereOnlyError where a bucket of a table may have rows of several of so many Kafka partitions."""
    if not fit(followed.entry.buckets, partitions):
        raise HereOnlyError(
            f"{followed.name} has {followed.entry.buckets} buckets, of which one may have keys of several of "
            f"{partitions} partitions"
        )


def fit(buckets: int, partitions: int) -> bool:
    """Whether each bucket has keys of one of so many Kafka partitions."""
    return buckets % partitions == 0
