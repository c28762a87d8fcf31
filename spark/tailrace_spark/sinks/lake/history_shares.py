"""Histories by executors: each share is files that are staged, and the driver commits them, table by table.

A file that no commit names has no reader. So attempts that do not count, of repeated shares or an earlier driver, leave
files for a vacuum, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.batch.micro_batch import CommitMessage, MicroBatch
from tailrace_spark.sinks.arrow.types import DAY, grown
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, LogShares, RecordForms, ShareImaging, emit
from tailrace_spark.sinks.lake.history import HistoryBatch, LakeHistory, description
from tailrace_spark.sinks.lake.history_table import HistoryTable, Route
from tailrace_spark.sinks.lake.opened_tables import OpenedTables
from tailrace_spark.sinks.lake.store import LakeStore, LakeTable
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import HereOnlyError, Needed
from tailrace_spark.sinks.shared_directory import mark_of, require_same
from tailrace_spark.sinks.table_faults import TableRefusedError, is_of_table


@dataclass(frozen=True, slots=True)
class StagedTable:
    """What a share has staged of one table.

    `noted` is what the table noted under some application ids when its writer looked. A commit on another state would
    write a record twice, or leave one out. `versions` are to be noted with the files. `identity` is the table's.
    """

    name: str
    identity: str
    files: tuple[Any, ...]
    noted: Mapping[str, int]
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HistoryWriter:
    """Stages a share's changes. `refused` says of tables, by their names in the lake, why they take none.

    `mark` is that of the store's directory, where it has one.
    """

    store: LakeStore = field(repr=False)
    plan: str
    refused: Mapping[str, str]
    mark: str | None = None
    letters: Letters = LOGGED

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        if self.store.directory is not None and self.mark is not None:
            require_same(self.store.directory, self.mark)
        outlet = _PLANNED.outlet(self)
        batch = _StagingBatch(outlet, outlet.store)
        summary = emit(batch, pieces, RecordForms())
        return CommitMessage(share, summary, tuple(batch.staged))


class HistoryShares(LogShares):
    """As LogShares: makes tables and columns, and commits what is staged. No attempt is seen by anybody before that,
    and no driver commits behind another's commit: there is nothing to fence.
    """

    def __init__(self, outlet: LakeHistory) -> None:
        self._outlet = outlet
        self._store = outlet.store

    def writer(self, batch: MicroBatch, needed: Needed, imaging: ShareImaging | None) -> HistoryWriter:
        """As LogShares says."""
        del batch, imaging  # a table notes the offsets of what it has, and not the batch
        self._outlet.forget()  # executors have written since
        for _, table in needed():
            self._prepare(table)
        directory = self._store.directory
        mark = None if directory is None else mark_of(directory)
        refused = self._outlet.refusals.remembered()
        return HistoryWriter(self._store, uuid4().hex, refused, mark, self._outlet.letters)

    def commit(self, messages: Sequence[CommitMessage]) -> None:
        """One commit of each table. Raises ServiceError where one is not made: the batch comes again for the others."""
        staged: dict[str, list[StagedTable]] = {}
        for message in messages:
            if isinstance(message.detail, tuple):
                for table in message.detail:
                    staged.setdefault(table.name, []).append(table)
        for name in sorted(staged):
            self._commit(name, staged[name])

    def _prepare(self, table: Table) -> None:
        """Make the table that a definition's changes go into, or its columns. One that is refused takes none."""
        try:
            route = self._outlet.fitting(table, HistoryBatch(self._outlet, self._store))
        except BaseException as error:
            if not is_of_table(error):
                raise
            return  # each change says so
        stored = self._store.open(route.name)
        if stored is not None and grown(stored.schema, route.schema) == stored.schema:
            return
        try:
            no_rows, says = pa.RecordBatchReader.from_batches(route.schema, []), description(route.table)
            self._store.append(route.name, stored, no_rows, {}, partitioned_by=DAY, says=says)
        except BaseException as error:
            if not is_of_table(error):
                raise
            self._outlet.refusals.note(route.name, error)

    def _commit(self, name: str, staged: Sequence[StagedTable]) -> None:
        stored = self._store.open(name)
        versions: dict[str, int] = {}
        for table in staged:
            if stored is None or stored.identity != table.identity or _noted(stored, table.noted) != table.noted:
                raise ServiceError(f"{self._store.uri(name)}: another writer came first: the batch is planned again")
            for application, version in table.versions.items():
                versions[application] = max(version, versions.get(application, 0))
        files = [file for table in staged for file in table.files]
        try:
            self._store.commit_staged(name, stored, files, versions)
        except BaseException as error:
            if not is_of_table(error):
                raise
            raise self._outlet.refused(name, error) from error


def _noted(stored: LakeTable, applications: Iterable[str]) -> dict[str, int]:
    return {application: stored.version_of(application) or 0 for application in applications}


class _StagingBatch(HistoryBatch):
    """A share's changes on their way into files."""

    def __init__(self, outlet: LakeHistory, store: LakeStore) -> None:
        super().__init__(outlet, store)
        self._lake = store
        self.staged: list[StagedTable] = []

    def append(self, writing: HistoryTable, moved: Mapping[str, int]) -> None:
        """Stage what would be appended."""
        stored = writing.stored
        if stored is None:
            raise HereOnlyError(f"{writing.name} is not there")
        files = self._lake.stage(writing.name, stored, writing.spool.reader())
        noted = _noted(stored, moved)
        self.staged.append(StagedTable(writing.name, stored.identity, tuple(files), noted, moved))


class _PlannedHistory(LakeHistory):
    """The tables as a plan has made them ready: a definition that they do not fit is for the driver."""

    def fitting(self, table: Table, batch: HistoryBatch) -> Route:
        """As LakeHistory has it. Raises HereOnlyError where the table or some of its columns are not there."""
        route = super().fitting(table, batch)
        schema, _ = batch.standing(route.name)
        if schema is None or grown(schema, route.schema) != schema:
            self.refusals.check(route.name)
            raise HereOnlyError(f"{route.name} is another than it was made ready to be")
        return route


class _Planned:
    """What a worker process knows of the newest plan that it had a share of."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._plan: str | None = None
        self._outlet: LakeHistory | None = None

    def outlet(self, writer: HistoryWriter) -> LakeHistory:
        """The outlet of a writer's plan, which other shares of the plan have used."""
        with self._lock:
            outlet = self._outlet
            if outlet is None or self._plan != writer.plan:
                opened: Any = OpenedTables(writer.store)
                outlet = self._outlet = _PlannedHistory(opened, letters=writer.letters)
                self._plan = writer.plan
                for name, reason in writer.refused.items():
                    outlet.refusals.note(name, TableRefusedError(reason))
            return outlet


_PLANNED: Final = _Planned()


def history_sink(outlet: LakeHistory) -> ChangeLogSink:
    """A change log whose tables are histories."""
    return ChangeLogSink(outlet, shares=HistoryShares(outlet))
