"""The schema history of a running agent: the log's DDL by position, reads of the cluster where the log is silent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol
from uuid import UUID

from tailrace.capture.ddl import Gap
from tailrace.capture.segment import Entry
from tailrace.commitlog.mutation import decode_mutation
from tailrace.errors import UnknownTableError
from tailrace.history.records import BEGINNING, HistoryRecord
from tailrace.history.rows import KeyedRow, SchemaRows, definitions_of
from tailrace.history.schema import SchemaDifference, SchemaHistory
from tailrace.position import Position
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table

_LOG: Final = logging.getLogger("tailrace.capture")
_SYSTEM: Final = frozenset(table.keyspace for table in system_tables())


class SchemaReader(Protocol):
    """Who reads the cluster's schema. Raises ServiceError while it cannot."""

    def schema_rows(self) -> Sequence[KeyedRow]:
        """The rows of `system_schema` of all keyspaces, now, with their write times."""


class SchemaSource(Protocol):
    """The log's DDL in position order; see capture.ddl.SchemaLog."""

    @property
    def gaps(self) -> list[Gap]: ...

    @property
    def place(self) -> Position | None: ...

    def begin(self, at: Position | None, epoch: int) -> None: ...

    def read(self, until: Position | None) -> list[Entry]: ...


class LiveSchema:
    """The present history. `hint` may be called from any thread; everything else from the run loop's.

    It outlives sessions with Kafka: what was read of a segment that is gone since cannot be read again.
    """

    def __init__(self, reader: SchemaReader, log: SchemaSource) -> None:
        self._reader = reader
        self._log = log
        self._hinted = threading.Event()
        self._rows = SchemaRows()
        self._schema_tables = {table.id: table for table in system_tables() if table.keyspace == "system_schema"}
        self._read: dict[UUID, Table] = {}
        self._read_rows: Sequence[KeyedRow] = ()
        self._records: list[HistoryRecord] = []
        self._begun = False
        self._applied = BEGINNING
        self.unsent: list[HistoryRecord] = []
        """What the history topic has not got yet, to be committed with what follows from it."""
        self.history = SchemaHistory().learn(system_tables())[0]

    # -- reads of the cluster

    def hint(self) -> None:
        """The schema may have changed."""
        self._hinted.set()

    @property
    def hinted(self) -> bool:
        """Whether there was a hint since the last read."""
        return self._hinted.is_set()

    def learn(self) -> SchemaDifference:
        """Read the schema and take the ids that are new in it. Raises ServiceError, then nothing changed.

        Definitions that are known stay, until the log is at their DDL: its older mutations were written under them.
        """
        # Cleared before the read: a change during it hints again, and so does the driver once it is back.
        self._hinted.clear()
        self._read_rows = self._reader.schema_rows()
        definitions = definitions_of(self._read_rows)
        self._read = {table.id: table for table in definitions.tables}
        self._schema_tables = {id: _joined(table, self._read.get(id)) for id, table in self._schema_tables.items()}
        for problem in definitions.problems:
            _LOG.warning("no definition: %s", problem)
        self._rows = self._rows.with_base(self._read_rows, read=True)
        self.history, difference = self.history.learn(definitions.tables)
        return _told(difference)

    # -- the log

    @property
    def place(self) -> Position | None:
        """Up to where the log was read for DDL."""
        return self._log.place

    def begin(self, known: Sequence[HistoryRecord], at: Position | None, epoch: int) -> None:
        """A session with Kafka begins, which has these records, and DDL was read up to `at`.

        In the first one they are what the log said so far, and what was read of the cluster before is only there for
        ids that they lack. Without any the cluster's definitions hold from the beginning of the log.
        """
        if not self._begun:
            self._begun = True
            if known:
                self._restore(known)
            else:
                self._seed()
            self._log.begin(at if known else None, epoch)
        there = {(record.position, record.table_id) for record in known}
        self.unsent = [record for record in self._records if (record.position, record.table_id) not in there]

    def follow(self, until: Position | None) -> bool:
        """Read the log's DDL on, at least up to a position; whether it changed anything. Raises ServiceError."""
        if not self._begun:
            return False
        changed = False
        for entry in self._log.read(until):
            if entry.position > self._applied:
                changed |= self._apply(entry)
        return changed

    def as_read(self, entry: Entry) -> SchemaHistory:
        """The history in which what was read of the cluster last holds from this mutation on, for its tables."""
        at = Position(entry.position.epoch, entry.position.segment, entry.position.offset - 1)
        tables = (table for id, table in self._read.items() if id in self.history.timelines)
        return self.history.define(at, (table for table in tables if table.id.bytes in entry.payload))[0]

    def adopt(self, trial: SchemaHistory) -> bool:
        """Let a history of `as_read` be the present one, as it explains what the log's own word does not."""
        changed = False
        for id, timeline in trial.timelines.items():
            if timeline is not self.history.timelines.get(id):
                self._infer(timeline.newest, timeline.since[-1])
                changed = True
        return changed

    def _infer(self, table: Table, position: Position) -> None:
        """A definition that was read holds from a position on, though the log did not say so."""
        name = (table.keyspace, table.name)
        rows = [row for row in self._read_rows if row.owner == name or row.table == "types"]
        self._rows = self._rows.without(name).with_base(rows, read=False)
        self.history = self.history.define(position, (table,))[0]
        self._add(HistoryRecord(position, table.id, name, self._rows.rows(name), inferred=True))
        _LOG.warning("%s changed unseen: the cluster's present definition is taken from %s on", table, position)

    def sent(self) -> None:
        """Everything unsent is committed."""
        self.unsent = []

    def _restore(self, known: Sequence[HistoryRecord]) -> None:
        newest = {record.name: record for record in known}.values()
        rows = [row for record in sorted(newest, key=lambda record: record.position) for row in record.rows]
        self._rows = SchemaRows().with_base(rows, read=False).with_base(self._read_rows, read=True)
        read, self.history = self.history, SchemaHistory()
        for record in known:
            table = record.table
            if table is None:
                timeline = self.history.timelines.get(record.table_id)
                self.history = self.history.drop(() if timeline is None else (timeline.newest,))[0]
            else:
                self.history = self.history.define(record.position, (table,))[0]
            self._applied = max(self._applied, record.position)
        self._records = list(known)
        self.history = self.history.learn(timeline.newest for timeline in read.timelines.values())[0]

    def _seed(self) -> None:
        self._records = [
            HistoryRecord(BEGINNING, table.id, name, self._rows.rows(name))
            for name, table in sorted(self._rows.definitions.items())
            if name[0] not in _SYSTEM
        ]

    def _apply(self, entry: Entry) -> bool:
        """One mutation of `system_schema`, in position order."""
        try:
            mutation = decode_mutation(entry.payload, entry.version, self._schema_tables.get)
            rows, change = self._rows.apply(mutation)
        except (UnknownTableError, DecodeError) as error:
            _LOG.error("DDL at %s in %s cannot be read: %s", entry.position, entry.file, error)
            return False
        self._applied = entry.position
        self._rows = rows
        for problem in change.problems:
            _LOG.warning("no definition at %s: %s", entry.position, problem)
        gone = {table.id for table in change.dropped} - {table.id for table in change.defined}
        self.history, dropped = self.history.drop(table for table in change.dropped if table.id in gone)
        self.history, difference = self.history.define(entry.position, change.defined)
        for table in (*change.dropped, *change.defined):
            name = (table.keyspace, table.name)
            if name[0] not in _SYSTEM and (table.id in gone or table in change.defined):
                found = () if table.id in gone else rows.rows(name)
                self._add(HistoryRecord(entry.position, table.id, name, found))
        return bool(_told(replace(difference, dropped=dropped.dropped), entry.position))

    def _add(self, record: HistoryRecord) -> None:
        self._records.append(record)
        self.unsent.append(record)


def _joined(built_in: Table, read: Table | None) -> Table:
    """One of `system_schema`'s tables with the columns that this release has beside those that are built in."""
    known = {column.name_bytes for column in built_in.columns}
    more = () if read is None else tuple(column for column in read.regular if column.name_bytes not in known)
    return replace(built_in, regular=tuple(sorted((*built_in.regular, *more), key=lambda column: column.name_bytes)))


def _told(difference: SchemaDifference, position: Position | None = None) -> SchemaDifference:
    """Say what changed, without Cassandra's own tables: the built-in ones are only of another release."""
    ours = SchemaDifference(
        *(
            tuple(table for table in tables if table.keyspace not in _SYSTEM)
            for tables in (difference.added, difference.altered, difference.dropped)
        )
    )
    if ours:
        _LOG.info("schema%s: %s", "" if position is None else f" at {position}", ours)
    return difference
