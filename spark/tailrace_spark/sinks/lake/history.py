"""Histories: a table of a lake for each source table, in which each change is one row, once, whatever comes again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import pyarrow as pa

from tailrace_common.sections.template import directory_name
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import (
    CommitMessage,
    DeadLetter,
    Delivered,
    MicroBatch,
    Piece,
    RecordId,
    RecordKey,
    Summary,
)
from tailrace_spark.batch.pieces import gc_paused
from tailrace_spark.sinks.arrow.change_columns import ChangeColumns, fill
from tailrace_spark.sinks.arrow.schema import arrow_schema
from tailrace_spark.sinks.arrow.types import DAY, grown, history_schema
from tailrace_spark.sinks.arrow.values import change_batch
from tailrace_spark.sinks.changelog.sink import (
    Batch,
    ChangeLogSink,
    LogShares,
    OutgoingRecord,
    RecordForms,
    ShareImaging,
    emit,
)
from tailrace_spark.sinks.lake.history_table import IN_MEMORY, HistoryTable, Route, Spool, rows_of
from tailrace_spark.sinks.lake.names import distinct, names_of
from tailrace_spark.sinks.lake.staging import LakePlan, Staged, commit, noted, opened_once, staged_by
from tailrace_spark.sinks.lake.store import LakeStore, LakeTable
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import HereOnlyError, Needed
from tailrace_spark.sinks.table_faults import Refusals, TableRefusedError, in_halves, is_of_table, reason_of
from tailrace_spark.sinks.worker_cache import WorkerCache

log = logging.getLogger("tailrace_spark")

_GROUP_RECORDS: Final = 2_000
_SAYS: Final = "Changes of "


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """So many changes, or bytes of them, become columns at a time; records wait up to as many bytes.

    What a table's commit has beyond `memory_bytes` waits in a file.
    """

    changes: int = 10_000
    bytes: int = 64 << 20
    memory_bytes: int = IN_MEMORY


HISTORY_LIMITS: Final = HistoryLimits()


class LakeHistory(LogShares):
    """One commit for each table of a batch; it notes how far each partition of Kafka is in that table.

    The tables alone say what was written, so a redelivered batch, in part, cut otherwise or to another
    process, changes nothing. Of two that write at a time one fails, and finds its batch done when it is redelivered. No
    driver commits behind another's commit: there is nothing to fence.
    """

    def __init__(
        self, store: LakeStore, limits: HistoryLimits = HISTORY_LIMITS, letters: Letters = LOGGED, *, here: bool = True
    ) -> None:
        """`here`: of the driver, which makes tables and commits; else of shares, whose store opens each table once."""
        self.letters = letters
        self.limits = limits
        self.here = here
        self.store = store
        self.refusals = Refusals()
        self._routes: dict[int, Route] = {}
        self.forms = RecordForms()

    def reach(self) -> None:
        """See that the root may be written."""
        self.store.reach()

    def begin(self, batch: MicroBatch) -> Batch:
        """As Outlet says."""
        return (AgainBatch if batch.again else HistoryBatch)(self, opened_once(self.store))

    def writer(self, batch: MicroBatch, needed: Needed, imaging: ShareImaging | None) -> HistoryWriter:
        """As LogShares says: makes tables and columns. One that is refused takes none, and each change says so."""
        del batch, imaging  # a table notes the offsets of what it has, and not the batch
        self.forget()  # executors have written since
        tables = opened_once(self.store)
        for _, table in needed():
            try:
                self.ready(tables, self.route(table, tables))
            except BaseException as error:
                if not is_of_table(error):
                    raise
        return HistoryWriter(LakePlan.of(self.store), self.refusals.remembered(), self.letters)

    def commit(self, messages: Sequence[CommitMessage]) -> None:
        """As LogShares says. Raises ServiceError where a table is not committed: the batch is redelivered."""
        self.put(self.store, staged_by(messages))

    def put(self, store: LakeStore, staged: Iterable[Staged]) -> None:
        """Commit what is staged. What the store refuses is set aside at the redelivery: ServiceError."""
        commit(store, staged, self._refused)

    def route(self, table: Table, tables: LakeStore) -> Route:
        """Where the changes of a definition go: the first of NAME, NAME-2, ... that is its table's, and that it fits.

        Raises TableRefusedError where the store refused that a moment ago.
        """
        route = self._routes.get(id(table))
        if route is None:
            route = self._routes[id(table)] = self._fitting(table, tables)
        self.refusals.check(route.name)
        return route

    def _fitting(self, table: Table, tables: LakeStore) -> Route:
        numbers, name = arrow_schema(table), directory_name(table.keyspace, table.name)
        for suffix in count(1):
            candidate = name if suffix == 1 else f"{name}-{suffix}"
            stored = tables.open(candidate)
            if stored is not None and stored.says.startswith(_SAYS) and stored.says != description(table):
                continue  # the store holds for one name what differs by case, as Iceberg's catalogs in Hive and Glue do
            schema = None if stored is None else stored.schema
            if schema is not None and DAY not in schema.names:
                raise TableRefusedError(
                    f"{candidate} is a table of another kind: move it away, or give this sink another path"
                )
            labels = distinct(numbers, {} if schema is None else names_of(schema))
            columns = self.store.typed(history_schema(labels))
            if schema is None or grown(schema, columns) is not None:
                return Route(table, numbers, labels, columns, candidate)
        raise AssertionError("numbers do not end")

    def ready(self, tables: LakeStore, route: Route) -> LakeTable:
        """The table of a route, with its columns: here these are made, in shares HereOnlyError is raised.

        Raises ServiceError where it has other columns by now.
        """
        stored = tables.open(route.name)
        schema = route.schema if stored is None else grown(stored.schema, route.schema)
        if stored is not None and schema == stored.schema:
            return stored
        if not self.here:
            raise HereOnlyError(f"{route.name} is another than it was made ready to be")
        if schema is None:
            raise ServiceError(f"{route.name} has other columns than before: {route.table} will be placed again")
        try:
            if stored is None:
                no_rows, says = pa.RecordBatchReader.from_batches(schema, []), description(route.table)
                tables.make(route.name, no_rows, {}, partitioned_by=DAY, says=says)
            else:
                tables.widen(route.name, stored, schema)
        except BaseException as error:
            if is_of_table(error):
                self.refusals.note(route.name, error)
            raise
        made = tables.open(route.name)
        if made is None:
            raise ServiceError(f"{self.store.uri(route.name)} has gone")
        return made

    def _refused(self, name: str, error: BaseException) -> ServiceError:
        self.refusals.note(name, error)
        return ServiceError(f"{self.store.uri(name)} is refused: {reason_of(error)}; its changes will be set aside")

    def forget(self) -> None:
        """Look again where definitions fit."""
        self._routes.clear()

    def close(self) -> None:
        """Nothing is kept open between batches."""


def history_sink(outlet: LakeHistory) -> ChangeLogSink:
    """A change log whose tables are histories."""
    return ChangeLogSink(outlet, shares=outlet)


@dataclass(frozen=True, slots=True)
class HistoryWriter:
    """Stages a share's changes. `refused` says of tables, by their names in the lake, why they take none."""

    plan: LakePlan
    refused: Mapping[str, str] = field(compare=False)
    letters: Letters = field(default=LOGGED, compare=False)

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        with _PLANNED.borrowed(self) as outlet:
            batch = HistoryBatch(outlet, outlet.store)
            return CommitMessage(share, emit(batch, pieces, outlet.forms), tuple(batch.staged))

    def open(self) -> LakeHistory:
        """The tables as the plan has made them ready, for all of its shares in one process."""
        outlet = LakeHistory(self.plan.open(), letters=self.letters, here=False)
        for name, reason in self.refused.items():
            outlet.refusals.note(name, TableRefusedError(reason))
        return outlet


_PLANNED: Final = WorkerCache(HistoryWriter.open, 1)


def description(table: Table) -> str:
    """What a history says of itself: whose changes it has."""
    return f"{_SAYS}{table}"


@dataclass(slots=True)
class _Filling:
    """Changes of one definition on their way into a table's spool, column by column."""

    route: Route
    writing: HistoryTable
    columns: ChangeColumns


class HistoryBatch(Batch):
    """One micro-batch, or a share of it, on its way into its tables."""

    def __init__(self, outlet: LakeHistory, tables: LakeStore) -> None:
        super().__init__()
        self._outlet = outlet
        self._store = tables
        self._tables: dict[str, HistoryTable] = {}
        self._routed: dict[int, HistoryTable] = {}
        self._fillings: dict[int, _Filling] = {}
        self._left_out = 0
        self.staged: list[Staged] = []
        """What is staged of each table, once it is committed."""

    def put_all(self, changes: Sequence[Delivered]) -> Sequence[Delivered]:
        """As Batch says."""
        rest: list[Delivered] = []
        by_table: dict[int, list[Delivered]] = {}
        for delivered in changes:
            by_table.setdefault(id(delivered.change.table), []).append(delivered)
        with gc_paused():
            for some in by_table.values():
                self._put_table(some, rest)
        return rest

    def _put_table(self, some: Sequence[Delivered], rest: list[Delivered]) -> None:
        """Take changes of one definition; `rest` gets what is to be put by itself, or set aside."""
        start, table = 0, some[0].change.table
        try:
            filling = self._fillings.get(id(table)) or self._filling(table)
        except BaseException as error:
            if not is_of_table(error):
                raise
            rest += some  # each of them says why
            return
        while (start := fill(filling.columns, some, start, filling.writing.ends, rest)) < len(some):
            self._pour(filling)

    def _filling(self, table: Table) -> _Filling:
        route, limits = self._outlet.route(table, self._store), self._outlet.limits
        filling = _Filling(route, self._writing(route), ChangeColumns(table, limits.changes, limits.bytes))
        self._fillings[id(table)] = filling
        return filling

    def _pour(self, filling: _Filling) -> None:
        """Put what is in the columns into the spool, and what only records can say as these."""
        columns, route = filling.columns, filling.route
        if not columns.rows:
            return
        try:
            batch, odd = change_batch(columns, route.numbers, route.schema)
        except BaseException as error:
            if not is_of_table(error):
                raise
            self._add_each(filling.writing, route, columns.taken)
        else:
            filling.writing.spool.add(batch)
            self._add_each(filling.writing, route, [columns.taken[row] for row in odd])
        filling.columns = ChangeColumns(route.table, columns.capacity, columns.octets)

    def _add_each(self, writing: HistoryTable, route: Route, changes: Sequence[Delivered]) -> None:
        """Put changes into the spool as the records that they are, or set them aside."""
        records: list[OutgoingRecord] = []
        for delivered in changes:
            try:
                form = self._outlet.forms.of(delivered.change.table)
                records.append(OutgoingRecord(delivered.record_id, delivered.change, delivered.assignment, form))
            except BaseException as error:
                if not is_of_table(error):
                    raise
                self.set_aside(DeadLetter(delivered.record_id, reason_of(error), delivered.message))
        self._add(writing, route, records)

    def _add(self, writing: HistoryTable, route: Route, records: Sequence[OutgoingRecord]) -> None:
        """Put records into the spool; those that there is no way to say are set aside."""

        def refuse(record: OutgoingRecord, error: BaseException) -> None:
            self.set_aside(DeadLetter(record.record_id, reason_of(error), record.message))

        in_halves(records, lambda some: writing.spool.add(rows_of(route, some)), refuse)

    def _writing(self, route: Route) -> HistoryTable:
        writing = self._routed.get(id(route))
        if writing is None:
            stored, writing = self._outlet.ready(self._store, route), self._tables.get(route.name)
            if writing is None:
                spool = Spool(stored.schema, self._outlet.limits.memory_bytes)
                writing = self._tables[route.name] = HistoryTable(stored, spool)
            else:
                writing.stored, writing.spool.schema = stored, stored.schema
            self._routed[id(route)] = writing
        return writing

    def put(self, record: OutgoingRecord) -> None:
        route = self._outlet.route(record.change.table, self._store)
        writing = self._writing(route)
        if not self._takes(writing, record.record_id):
            self._left_out += 1
            return
        is_full = len(writing.waiting) >= _GROUP_RECORDS or writing.waiting_bytes >= self._outlet.limits.bytes
        if writing.route is not route or is_full:
            self._flush(writing)
            writing.route = route
        writing.waiting.append(record)
        writing.waiting_bytes += record.octets

    def _takes(self, writing: HistoryTable, record_id: RecordId) -> bool:
        return writing.take(record_id)

    def _flush(self, writing: HistoryTable) -> None:
        if writing.waiting and writing.route is not None:
            waiting, writing.waiting, writing.waiting_bytes = writing.waiting, [], 0
            self._add(writing, writing.route, waiting)

    def commit(self) -> Summary:
        """As Batch says; a share is staged, and the driver commits it."""
        if self._left_out:
            log.info("skipped %d records that an earlier commit has already written", self._left_out)
        for filling in self._fillings.values():
            self._pour(filling)
        for writing in self._tables.values():
            self._flush(writing)
        self._outlet.letters.put(self.aside)  # what a table has by its noted offsets is left out from then on
        self.staged += [
            self._staged(name, writing) for name, writing in self._tables.items() if writing.moved or writing.spool.rows
        ]
        if self._outlet.here:
            self._outlet.put(self._store, self.staged)
        rows = sum(writing.spool.rows for writing in self._tables.values())
        self._close()
        return Summary(rows=rows, dead_letters=len(self.aside))

    def _staged(self, name: str, writing: HistoryTable) -> Staged:
        stored, moved = writing.stored, writing.moved
        files = self._store.stage(name, stored, writing.spool.reader(), here=self._outlet.here)
        return Staged(name, stored.identity, noted(stored, moved), moved, tuple(files))

    def abandon(self) -> None:
        """What of its tables is committed stays, and is left out when the batch comes again."""
        self._outlet.forget()
        self._close()

    def _close(self) -> None:
        for writing in self._tables.values():
            writing.spool.close()


class AgainBatch(HistoryBatch):
    """Changes of dead letters: those that their table has are left out, by their places; its ends stay as they are."""

    def __init__(self, outlet: LakeHistory, tables: LakeStore) -> None:
        super().__init__(outlet, tables)
        self._offsets: list[int] = []
        self._there: dict[int, set[RecordKey]] = {}

    def put_all(self, changes: Sequence[Delivered]) -> Sequence[Delivered]:
        """None: each is looked for."""
        self._offsets = sorted({delivered.record_id.offset for delivered in changes})
        self._there.clear()
        return changes

    def _takes(self, writing: HistoryTable, record_id: RecordId) -> bool:
        if id(writing) not in self._there:
            self._there[id(writing)] = writing.places(self._offsets)
        return record_id.key not in self._there[id(writing)]
