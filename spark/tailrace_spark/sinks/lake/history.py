"""Histories: a table of a lake for each source table, in which each change is one row, once, whatever comes again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import count
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from tailrace_schemas.change import record_times
from tailrace_schemas.change_json import ChangeForms
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, RecordId, Summary
from tailrace_spark.batch.gc_pause import gc_paused
from tailrace_spark.sinks.arrow.change_batch import change_batch
from tailrace_spark.sinks.arrow.change_columns import ChangeColumns, Ends, fill
from tailrace_spark.sinks.arrow.date_range import within
from tailrace_spark.sinks.arrow.relabel import relabelled_batch
from tailrace_spark.sinks.arrow.schema import arrow_schema
from tailrace_spark.sinks.arrow.types import DAY, conform, grown, history_schema, sayable
from tailrace_spark.sinks.changelog.days import day_of
from tailrace_spark.sinks.changelog.sink import Batch, OutgoingRecord, stream_value
from tailrace_spark.sinks.lake.names import distinct, names_of
from tailrace_spark.sinks.lake.spool import Spool
from tailrace_spark.sinks.lake.store import LakeStore, LakeTable, Number
from tailrace_spark.sinks.table_faults import Refusals, is_of_table, reason_of

log = logging.getLogger("tailrace_spark")

DEAD_LETTERS: Final = "tailrace.dead-letters"  # no CQL name has a hyphen
LETTERS: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("schema", pa.string()),
     ("reason", pa.string()), ("message", pa.binary())]
)  # fmt: skip
PLACE: Final = ("topic", "partition", "offset")
REPLAYS: Final = "tailrace/letters"
"""The application id under which a history counts what may have written places of dead letters: of two one fails."""
_GROUP_RECORDS: Final = 2_000
_GROUP_CHANGES: Final = 10_000
_GROUP_BYTES: Final = 64 << 20


class LakeHistory:
    """One commit for each table of a batch; it notes how far each partition of Kafka is in that table.

    What is there is told by the tables alone, so a batch that comes again, in part, cut otherwise or to another
    process, changes nothing. Of two that write at a time one fails, and finds its batch done when it comes again.
    """

    def __init__(self, store: LakeStore) -> None:
        self.refusals = Refusals()
        self._store = store
        self._routes: dict[int, _Route] = {}
        self._forms = ChangeForms()
        self._lettered: dict[tuple[str, int], int] = {}

    def reach(self) -> None:
        """See that the root may be written."""
        self._store.reach()

    def begin(self) -> Batch:
        return HistoryBatch(self, self._store)

    def route(self, table: Table, batch: HistoryBatch) -> _Route:
        """Where the changes of a definition go: the first of NAME, NAME-2, ... whose columns it fits.

        Raises TableRefusedError where the store refused that a moment ago.
        """
        known = self._routes.get(id(table))
        if known is None:
            known = self._routes[id(table)] = self._fitting(table, arrow_schema(table), batch)
        self.refusals.check(known.name)
        return known

    def _fitting(self, table: Table, numbers: Any, batch: HistoryBatch) -> _Route:
        name = table_name(table)
        for number in count(1):
            candidate = name if number == 1 else f"{name}-{number}"
            schema = batch.schema_of(candidate)
            if schema is not None and DAY not in schema.names:
                raise SettingsError(f"{candidate} is a table of another kind: give this sink another path")
            labels = distinct(numbers, {} if schema is None else names_of(schema))
            wanted = self._store.typed(history_schema(labels))
            if schema is None or grown(schema, wanted) is not None:
                return _Route(table, numbers, labels, wanted, candidate)
        raise AssertionError("numbers do not end")

    def record(self, one: Delivered) -> OutgoingRecord:
        """The record of a change."""
        return OutgoingRecord(
            one.record_id, one.change, one.assignment, self._forms.of(one.change.table).record(one.change)
        )

    def lettered(self, topic: str, partition: int) -> int:
        """The offset behind the last dead letter of a partition of Kafka; 0: there is none."""
        at = topic, partition
        if at not in self._lettered:
            stored = self._store.open(DEAD_LETTERS)
            self._lettered[at] = 0 if stored is None else stored.version_of(application(*at)) or 0
        return self._lettered[at]

    def forget(self) -> None:
        """Look again where definitions fit, and dead letters end."""
        self._routes.clear()
        self._lettered.clear()

    def close(self) -> None:
        """Nothing is kept open between batches."""


def table_name(table: Table) -> str:
    """The name of a source table's directory below the path."""
    return f"{quote(table.keyspace, safe='')}.{quote(table.name, safe='')}"


def application(topic: str, partition: int) -> str:
    """The application id under which a table notes the next offset of a partition of Kafka."""
    return f"tailrace/{topic}/{partition}"


def replays(topic: str, partition: int) -> str:
    """That under which it notes how far replays of dead letters wrote changes of one, each by its place."""
    return f"tailrace/letters/{topic}/{partition}"


@dataclass(frozen=True, slots=True)
class _Route:
    """Where a definition's changes go; `numbers` is what a record is in Arrow, `schema` what it is in the lake.

    `labels` is `numbers` with the lake's names.
    """

    table: Table  # kept, so that its id stays its own
    numbers: Any
    labels: Any
    schema: Any
    name: str


@dataclass(slots=True)
class Writing:
    """One table of a batch: as it was when it was opened, what goes in, and how far that moves each partition.

    `lettered`: behind which offset a topic's partition has no dead letters.
    """

    name: str
    stored: LakeTable | None
    says: str
    spool: Spool
    partitioned_by: str | None = None
    lettered: Callable[[str, int], int] = lambda *_: 0
    route: _Route | None = None
    waiting: list[OutgoingRecord] = field(default_factory=list)
    ends: Ends = field(init=False)

    def __post_init__(self) -> None:
        self.ends = Ends(self._end, self._replayed)

    def take(self, record_id: RecordId) -> bool:
        """Whether a record is not there yet; then it moves the end of its partition."""
        new = self.ends.new(record_id)
        if new:
            self.ends.move(record_id)
        return new

    @property
    def moved(self) -> dict[str, int]:
        """What is noted with the rows: the next offset of each partition of Kafka that some of them come from.

        Where a dead letter may be of a place among them, as when a batch comes again and is understood now, a replay
        of it may be under way: then also what makes one of both fail.
        """
        noted = {application(*at): end for at, end in self.ends.moved.items()}
        if any(self._end(*at) < self.lettered(*at) for at in self.ends.moved):
            noted[REPLAYS] = self.noted(REPLAYS) + 1
        return noted

    def noted(self, application: str) -> int:
        """What the table notes under an application id; 0: nothing."""
        return 0 if self.stored is None else self.stored.version_of(application) or 0

    def _end(self, topic: str, partition: int) -> int:
        return self.noted(application(topic, partition))

    def _replayed(self, topic: str, partition: int) -> Collection[int]:
        """The offsets at the end and behind it that a replay of dead letters wrote."""
        end, upto = self._end(topic, partition), self.noted(replays(topic, partition))
        if self.stored is None or upto <= end:
            return ()
        offset = Number("offset")
        which = Number("partition").equals(partition) & offset.above(end - 1) & offset.at_most(upto - 1)
        found = self.stored.read(PLACE, which).to_pylist()
        return frozenset(row["offset"] for row in found if row["topic"] == topic)


@dataclass(slots=True)
class _Filling:
    """Changes of one definition on their way into a table's spool, column by column."""

    route: _Route
    writing: Writing
    columns: ChangeColumns


class HistoryBatch(Batch):
    """One micro-batch on its way into its tables."""

    def __init__(self, outlet: LakeHistory, store: LakeStore) -> None:
        self._outlet = outlet
        self._store = store
        self._tables: dict[str, Writing] = {}
        self._fillings: dict[int, _Filling] = {}
        self._letters: list[DeadLetter] = []
        self._left_out = 0

    def schema_of(self, name: str) -> Any | None:
        """The columns of a table, with those that this batch adds; None where there is no such table yet."""
        writing = self._tables.get(name)
        if writing is not None:
            return writing.spool.schema
        stored = self._store.open(name)
        return None if stored is None else stored.schema

    def put_all(self, changes: Sequence[Delivered]) -> Sequence[Delivered]:
        """As Batch says."""
        left: list[Delivered] = []
        by_table: dict[int, list[Delivered]] = {}
        for one in changes:
            by_table.setdefault(id(one.change.table), []).append(one)
        with gc_paused():
            for some in by_table.values():
                self._put_table(some, left)
        return left

    def _put_table(self, some: Sequence[Delivered], left: list[Delivered]) -> None:
        """Take changes of one definition; `left` gets what is to be put by itself, or set aside."""
        at, table = 0, some[0].change.table
        try:
            filling = self._fillings.get(id(table)) or self._filling(table)
        except BaseException as error:
            if not is_of_table(error):
                raise
            left += some  # each of them says why
            return
        while (at := fill(filling.columns, some, at, filling.writing.ends, left)) < len(some):
            self._pour(filling)

    def _filling(self, table: Table) -> _Filling:
        route = self._outlet.route(table, self)
        filling = _Filling(route, self._writing(route), ChangeColumns(table, _GROUP_CHANGES, _GROUP_BYTES))
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

    def _add_each(self, writing: Writing, route: _Route, changes: Sequence[Delivered]) -> None:
        """Put changes into the spool as the records that they are, or set them aside."""
        records: list[OutgoingRecord] = []
        for one in changes:
            try:
                records.append(self._outlet.record(one))
            except BaseException as error:
                if not is_of_table(error):
                    raise
                self.set_aside(DeadLetter(one.record_id, reason_of(error), one.message))
        self._add(writing, route, records)

    def _add(self, writing: Writing, route: _Route, records: Sequence[OutgoingRecord]) -> None:
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

    def _writing(self, route: _Route) -> Writing:
        return self._tables.get(route.name) or self._open(route.name, route.schema, f"Changes of {route.table}", DAY)

    def _widen(self, writing: Writing, route: _Route) -> None:
        if not writing.spool.widen(route.schema):
            raise ServiceError(f"{route.name} has other columns than before: {route.table} will be placed again")

    def put(self, record: OutgoingRecord) -> None:
        route = self._outlet.route(record.change.table, self)
        writing = self._writing(route)
        if not writing.take(record.record_id):
            self._left_out += 1
            return
        if writing.route is not route or len(writing.waiting) >= _GROUP_RECORDS:
            self._flush(writing)
            self._widen(writing, route)
            writing.route = route
        writing.waiting.append(record)

    def set_aside(self, letter: DeadLetter) -> None:
        writing = self._tables.get(DEAD_LETTERS) or self._open(DEAD_LETTERS, LETTERS, "Records that are no changes")
        if writing.take(letter.record_id):
            self._letters.append(letter)
        else:
            self._left_out += 1

    def _open(self, name: str, schema: Any, says: str, partitioned_by: str | None = None) -> Writing:
        stored = self._store.open(name)
        spool = Spool(schema if stored is None else stored.schema)
        writing = self._tables[name] = self.writing(name, stored, says, spool, partitioned_by)
        return writing

    def writing(self, name: str, stored: LakeTable | None, says: str, spool: Spool, by: str | None) -> Writing:
        """What tells which records are in a table."""
        return Writing(name, stored, says, spool, by, *(() if name == DEAD_LETTERS else (self._outlet.lettered,)))

    def _flush(self, writing: Writing) -> None:
        if writing.waiting and writing.route is not None:
            waiting, writing.waiting = writing.waiting, []
            self._add(writing, writing.route, waiting)

    def commit(self) -> Summary:
        if self._left_out:
            log.info("skipped %d records that an earlier commit has already written", self._left_out)
        for filling in self._fillings.values():
            self._pour(filling)
        for writing in list(self._tables.values()):  # what is set aside by that may open one more
            self._flush(writing)
        rows = 0
        for writing in self._tables.values():
            if writing.name == DEAD_LETTERS:
                writing.spool.add(letter_rows(self._letters))
            if moved := writing.moved:
                self._append(writing, moved)
            rows += writing.spool.rows
        if self._letters:
            self._outlet.forget()
        self._close()
        return Summary(rows=rows - len(self._letters), dead_letters=len(self._letters))

    def _append(self, writing: Writing, moved: Mapping[str, int]) -> None:
        """Commit one table. What the store refuses of it is set aside when the batch comes again: ServiceError."""
        rows, by, says = writing.spool.reader(), writing.partitioned_by, writing.says
        try:
            self._store.append(writing.name, writing.stored, rows, moved, partitioned_by=by, says=says)
        except BaseException as error:
            if writing.name == DEAD_LETTERS or not is_of_table(error):
                raise
            self._outlet.refusals.note(writing.name, error)
            raise ServiceError(
                f"{self._store.uri(writing.name)} is refused: {reason_of(error)}; its changes will be set aside"
            ) from error

    def abandon(self) -> None:
        """What of its tables is committed stays, and is left out when the batch comes again."""
        self._outlet.forget()
        self._close()

    def _close(self) -> None:
        for writing in self._tables.values():
            writing.spool.close()


def rows_of(route: _Route, records: Sequence[OutgoingRecord]) -> Any:
    """The RecordBatch of a definition's changes, one row each."""
    rows = [{**one.record_id.to_json(), **stream_value(one.assignment), **one.record} for one in records]
    days = pa.array([date.fromisoformat(day_of(record_times(one.change)[0])) for one in records], pa.date32())
    batch = _arrow(rows, route.numbers)
    if not all(map(sayable, batch.columns)):
        batch = _arrow([within(route.table, row) for row in rows], route.numbers)
    batch = relabelled_batch(batch, route.labels)
    batch = conform(batch, pa.schema([route.schema.field(name) for name in route.numbers.names]))
    return pa.RecordBatch.from_arrays([*batch.columns, days], schema=route.schema)


def _arrow(rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    arrays = [pa.array([row.get(field.name) for row in rows], type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def letter_rows(letters: Sequence[DeadLetter]) -> Any:
    """The RecordBatch of dead letters, one row each."""
    rows = [{**one.record_id.to_json(), "reason": one.reason, "message": one.message} for one in letters]
    return pa.RecordBatch.from_pylist(rows, schema=LETTERS)
