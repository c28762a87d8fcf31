"""Histories: a table of a lake for each source table, in which each change is one row, once, whatever comes again."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from tailrace_common.sections.template import directory_name
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, RecordId, RecordKey, Summary
from tailrace_spark.batch.gc_pause import gc_paused
from tailrace_spark.batch.micro_batch import MicroBatch
from tailrace_spark.sinks.arrow.change_batch import change_batch
from tailrace_spark.sinks.arrow.change_columns import ChangeColumns, fill
from tailrace_spark.sinks.arrow.schema import arrow_schema
from tailrace_spark.sinks.arrow.types import DAY, grown, history_schema
from tailrace_spark.sinks.changelog.sink import Batch, OutgoingRecord, RecordForms
from tailrace_spark.sinks.lake.history_table import HistoryTable, Route, rows_of
from tailrace_spark.sinks.lake.names import distinct, names_of
from tailrace_spark.sinks.lake.spool import IN_MEMORY, Spool
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.table_faults import Refusals, TableRefusedError, is_of_table, reason_of

log = logging.getLogger("tailrace_spark")

_GROUP_RECORDS: Final = 2_000
_SAYS: Final = "Changes of "


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """So many changes, or bytes of them, become columns at a time. What a table's commit has beyond `memory_bytes`
    waits in a file."""

    changes: int = 10_000
    bytes: int = 64 << 20
    memory_bytes: int = IN_MEMORY


HISTORY_LIMITS: Final = HistoryLimits()


class LakeHistory:
    """One commit for each table of a batch; it notes how far each partition of Kafka is in that table.

    The tables alone say what was written, so a redelivered batch, in part, cut otherwise or to another
    process, changes nothing. Of two that write at a time one fails, and finds its batch done when it comes again.
    """

    def __init__(self, store: LakeStore, limits: HistoryLimits = HISTORY_LIMITS, letters: Letters = LOGGED) -> None:
        self.letters = letters
        self.refusals = Refusals()
        self.limits = limits
        self.store = store
        self._routes: dict[int, Route] = {}
        self._forms = RecordForms()

    def reach(self) -> None:
        """See that the root may be written."""
        self.store.reach()

    def begin(self, batch: MicroBatch) -> Batch:
        """As Outlet says."""
        return AgainBatch(self, self.store) if batch.again else HistoryBatch(self, self.store)

    def route(self, table: Table, batch: HistoryBatch) -> Route:
        """Where the changes of a definition go: the first of NAME, NAME-2, ... that is its table's, and that it fits.

        Raises TableRefusedError where the store refused that a moment ago.
        """
        route = self._routes.get(id(table))
        if route is None:
            route = self._routes[id(table)] = self.fitting(table, batch)
        self.refusals.check(route.name)
        return route

    def fitting(self, table: Table, batch: HistoryBatch) -> Route:
        """As `route`, by the tables of now."""
        numbers, name = arrow_schema(table), directory_name(table.keyspace, table.name)
        for suffix in count(1):
            candidate = name if suffix == 1 else f"{name}-{suffix}"
            schema, says = batch.standing(candidate)
            if says.startswith(_SAYS) and says != description(table):
                continue  # the store holds for one name what differs by case, as Iceberg's catalogs in Hive and Glue do
            if schema is not None and DAY not in schema.names:
                raise TableRefusedError(
                    f"{candidate} is a table of another kind: move it away, or give this sink another path"
                )
            labels = distinct(numbers, {} if schema is None else names_of(schema))
            columns = self.store.typed(history_schema(labels))
            if schema is None or grown(schema, columns) is not None:
                return Route(table, numbers, labels, columns, candidate)
        raise AssertionError("numbers do not end")

    def record(self, delivered: Delivered) -> OutgoingRecord:
        """The record of a change."""
        return OutgoingRecord(
            delivered.record_id, delivered.change, delivered.assignment, self._forms.of(delivered.change.table)
        )

    def refused(self, name: str, error: BaseException) -> ServiceError:
        """What is raised for a table that its store refuses: its changes are set aside when the batch comes again."""
        self.refusals.note(name, error)
        return ServiceError(f"{self.store.uri(name)} is refused: {reason_of(error)}; its changes will be set aside")

    def forget(self) -> None:
        """Look again where definitions fit."""
        self._routes.clear()

    def close(self) -> None:
        """Nothing is kept open between batches."""


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
    """One micro-batch on its way into its tables."""

    def __init__(self, outlet: LakeHistory, store: LakeStore) -> None:
        self._outlet = outlet
        self._store = store
        self._tables: dict[str, HistoryTable] = {}
        self._fillings: dict[int, _Filling] = {}
        self._letters: list[DeadLetter] = []
        self._left_out = 0

    def standing(self, name: str) -> tuple[Any | None, str]:
        """The columns of a table, with those that this batch adds, and what it says of itself.

        None where there is no such table yet.
        """
        writing = self._tables.get(name)
        if writing is not None:
            return writing.spool.schema, writing.says
        stored = self._store.open(name)
        return (None, "") if stored is None else (stored.schema, stored.says)

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
        route = self._outlet.route(table, self)
        limits = self._outlet.limits
        filling = _Filling(route, self._writing(route), ChangeColumns(table, limits.changes, limits.bytes))
        self._widen(filling.writing, route)  # at once: the next definition is placed by that
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
                records.append(self._outlet.record(delivered))
            except BaseException as error:
                if not is_of_table(error):
                    raise
                self.set_aside(DeadLetter(delivered.record_id, reason_of(error), delivered.message))
        self._add(writing, route, records)

    def _add(self, writing: HistoryTable, route: Route, records: Sequence[OutgoingRecord]) -> None:
        """Put records into the spool; where there is no way to say one, halves of them, until that stands alone."""
        if not records:
            return
        try:
            rows = rows_of(route, records)
        except BaseException as error:
            if not is_of_table(error):
                raise
            if len(records) == 1:
                self.set_aside(DeadLetter(records[0].record_id, reason_of(error), records[0].message))
                return
            middle = len(records) // 2
            self._add(writing, route, records[:middle])
            self._add(writing, route, records[middle:])
        else:
            writing.spool.add(rows)

    def _writing(self, route: Route) -> HistoryTable:
        return self._tables.get(route.name) or self._open(route.name, route.schema, description(route.table), DAY)

    def _widen(self, writing: HistoryTable, route: Route) -> None:
        if not writing.spool.widen(route.schema):
            raise ServiceError(f"{route.name} has other columns than before: {route.table} will be placed again")

    def put(self, record: OutgoingRecord) -> None:
        route = self._outlet.route(record.change.table, self)
        writing = self._writing(route)
        if not self._takes(writing, record.record_id):
            self._left_out += 1
            return
        if writing.route is not route or len(writing.waiting) >= _GROUP_RECORDS:
            self._flush(writing)
            self._widen(writing, route)
            writing.route = route
        writing.waiting.append(record)

    def _takes(self, writing: HistoryTable, record_id: RecordId) -> bool:
        return writing.take(record_id)

    def set_aside(self, letter: DeadLetter) -> None:
        self._letters.append(letter)

    def _open(self, name: str, schema: Any, says: str, partitioned_by: str | None = None) -> HistoryTable:
        stored = self._store.open(name)
        spool = Spool(schema if stored is None else stored.schema, self._outlet.limits.memory_bytes)
        writing = self._tables[name] = HistoryTable(name, stored, says, spool, partitioned_by)
        return writing

    def _flush(self, writing: HistoryTable) -> None:
        if writing.waiting and writing.route is not None:
            waiting, writing.waiting = writing.waiting, []
            self._add(writing, writing.route, waiting)

    def commit(self) -> Summary:
        if self._left_out:
            log.info("skipped %d records that an earlier commit has already written", self._left_out)
        for filling in self._fillings.values():
            self._pour(filling)
        for writing in self._tables.values():
            self._flush(writing)
        self._outlet.letters.put(self._letters)  # what a table has by its noted offsets is left out from then on
        rows = 0
        for writing in self._tables.values():
            if writing.moved or writing.spool.rows:
                self.append(writing, writing.moved)
            rows += writing.spool.rows
        self._close()
        return Summary(rows=rows, dead_letters=len(self._letters))

    def append(self, writing: HistoryTable, moved: Mapping[str, int]) -> None:
        """Commit one table. What the store refuses of it is set aside when the batch comes again: ServiceError."""
        rows, by, says = writing.spool.reader(), writing.partitioned_by, writing.says
        try:
            self._store.append(writing.name, writing.stored, rows, moved, partitioned_by=by, says=says)
        except BaseException as error:
            if not is_of_table(error):
                raise
            raise self._outlet.refused(writing.name, error) from error

    def abandon(self) -> None:
        """What of its tables is committed stays, and is left out when the batch comes again."""
        self._outlet.forget()
        self._close()

    def _close(self) -> None:
        for writing in self._tables.values():
            writing.spool.close()


class AgainBatch(HistoryBatch):
    """Changes of dead letters: those that their table has are left out, by their places; its ends stay as they are."""

    def __init__(self, outlet: LakeHistory, store: LakeStore) -> None:
        super().__init__(outlet, store)
        self._offsets: list[int] = []
        self._there: dict[str, set[RecordKey]] = {}

    def put_all(self, changes: Sequence[Delivered]) -> Sequence[Delivered]:
        """None: each is looked for."""
        self._offsets = sorted({delivered.record_id.offset for delivered in changes})
        self._there.clear()
        return changes

    def _takes(self, writing: HistoryTable, record_id: RecordId) -> bool:
        if writing.name not in self._there:
            self._there[writing.name] = writing.places(self._offsets)
        return record_id.key not in self._there[writing.name]
