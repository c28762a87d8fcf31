"""The schema history of a running agent: the log's DDL by position, reads of the cluster where the log is silent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol
from uuid import UUID

from tailrace.capture.ddl import Gap
from tailrace.commitlog.entry import Entry
from tailrace.commitlog.mutation import decode_mutation
from tailrace.errors import UnknownTableError
from tailrace.history.cells import NEVER
from tailrace.history.records import BEGINNING, HistoryRecord
from tailrace.history.rows import KeyedRow, Name, SchemaRows, definitions_of, user_types
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
        self._place: Position | None = None
        self._waiting: list[tuple[Position, Entry | Gap]] = []
        self._unsure: set[Name] = set()
        self.inferred: dict[str, str] = {}
        """What was concluded, not read in the log, by table, for people."""
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
        """Up to where the log was read for DDL, and that taken into account."""
        return self._place

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
            self._place = at if known else None
            self._log.begin(self._place, epoch)
        there = {(record.position, record.table_id) for record in known}
        self.unsent = [record for record in self._records if (record.position, record.table_id) not in there]

    def follow(self, until: Position | None) -> bool:
        """Read the log's DDL on, at least up to a position; whether it changed anything. Raises ServiceError, also
        where DDL may have been missed and the cluster cannot be asked; then nothing of that is passed over."""
        if not self._begun:
            return False
        self._waiting += [(entry.position, entry) for entry in self._log.read(until)]
        self._waiting += [(gap.until, gap) for gap in self._log.gaps]
        self._log.gaps.clear()
        self._waiting.sort(key=lambda item: item[0])
        changed = False
        if any(isinstance(one, Gap) for _, one in self._waiting):
            changed |= bool(self.learn())
        for _, one in self._waiting:
            if isinstance(one, Gap):
                changed |= self._cross(one)
            elif one.position > self._applied:
                changed |= self._apply(one)
        self._waiting.clear()
        self._place = self._log.place
        return changed

    def as_read(self, entry: Entry) -> SchemaHistory:
        """The history in which the columns that were read last hold from a mutation on, for its tables.

        The cdc flag is the log's still: the cluster's may be that of DDL which stands further on.
        """
        at = _before(entry)
        known = ((table, self.history.table(id, at)) for id, table in self._read.items() if id.bytes in entry.payload)
        used = (replace(table, cdc=held.cdc) for table, held in known if held is not None)
        return self.history.define(
            at, (table for table in used if table != self.history.table(table.id, at)), inferred=True
        )[0]

    def adopt(self, trial: SchemaHistory, entry: Entry) -> None:
        """Let a history of `as_read` be the present one, as it explains what the log's own word does not."""
        at = _before(entry)
        for id, timeline in trial.timelines.items():
            if timeline is self.history.timelines.get(id):
                continue
            table = timeline.at(at)
            name = (table.keyspace, table.name)
            rows = tuple(_with_flag(row, table.cdc) for row in self._rows_of(name))
            if self._rows.definitions.get(name) == self.history.table(id, at):  # no DDL of it was read ahead
                self._rows = self._rows.without(name).with_base(rows, read=True)
            self._unsure.add(name)
            self._add(HistoryRecord(at, id, name, rows, inferred=True))
            self._note(table, f"a write at {entry.position} has columns that no DDL told of: the cluster's are taken")
        self.history = trial

    def sent(self) -> None:
        """Everything unsent is committed."""
        self.unsent = []

    def _restore(self, known: Sequence[HistoryRecord]) -> None:
        newest = {record.name: record for record in known}.values()
        self._unsure = {record.name for record in newest if record.inferred}
        rows = [row for record in sorted(newest, key=lambda record: record.position) for row in record.rows]
        self._rows = SchemaRows().with_base(rows, read=False).with_base(self._read_rows, read=True)
        read, self.history = self.history, SchemaHistory()
        for record in known:
            table = record.table
            if table is None:
                timeline = self.history.timelines.get(record.table_id)
                self.history = self.history.drop(() if timeline is None else (timeline.newest,))[0]
            else:
                self.history = self.history.define(record.position, (table,), inferred=record.inferred)[0]
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
            words = f"DDL at {entry.position} in {entry.file} cannot be read, and was passed over: {error}"
            self.inferred["system_schema"] = words
            _LOG.error("%s", words)
            return False
        self._applied = entry.position
        self._rows = rows
        for problem in change.problems:
            _LOG.warning("no definition at %s: %s", entry.position, problem)
        gone = {table.id for table in change.dropped} - {table.id for table in change.defined}
        self.history, dropped = self.history.drop(table for table in change.dropped if table.id in gone)
        for table in change.dropped:
            if table.id in gone and table.keyspace not in _SYSTEM:
                self._add(HistoryRecord(entry.position, table.id, (table.keyspace, table.name)))
        added, altered = list[Table](), list[Table]()
        for table in change.defined:
            difference = self._define(table, entry.position, inferred=(table.keyspace, table.name) in self._unsure)
            added += difference.added
            altered += difference.altered
        self._explained(entry.position)
        return bool(_told(SchemaDifference(tuple(added), tuple(altered), dropped.dropped), entry.position))

    def _define(self, table: Table, position: Position, *, inferred: bool) -> SchemaDifference:
        """A definition, which its rows make by now, holds from a position on; for sure, or not."""
        name = (table.keyspace, table.name)
        self.history, difference = self.history.define(position, (table,), inferred=inferred)
        if name[0] not in _SYSTEM:
            self._add(HistoryRecord(position, table.id, name, self._rows.rows(name), inferred=inferred))
        if inferred:
            self._unsure.add(name)
        else:
            self._unsure.discard(name)
        return difference

    # -- what the log did not say

    def _cross(self, gap: Gap) -> bool:
        """DDL may have stood where the log could not be read: what was altered there, by the rows' write times?

        A table whose rows are newer than the log's, and older than what follows the gap, was altered in the gap: its
        present definition holds from there on. One that is newer still was altered later, and the log will say so;
        but it may have been altered in the gap too, so that what stands up to then is marked.
        """
        changed = False
        for name, (table, written) in self._present().items():
            known = self.history.newest(table.id)
            if written <= self._rows.written(name):
                # Its own rows are known; but those of its user types?
                written = self._types_written(table) if known is not None and known != table else NEVER
            if written == NEVER:
                continue
            words = f"altered unseen between {gap.after} and {gap.until}"
            if gap.written is None or written < gap.written:
                changed |= self._infer(table, gap.until, words)
            elif known is not None and known == self._rows.definitions.get(name):
                self._define(known, gap.until, inferred=True)
                self._note(known, f"may have been {words}: changes up to its next DDL are marked schema_inferred")
        return changed

    def _explained(self, position: Position) -> None:
        """The log has come to the newest DDL that the cluster has of a table: nothing is unsure from here on."""
        for name, (table, written) in (self._present() if self._unsure else {}).items():
            ours = self._rows.written(name)
            if name not in self._unsure or ours < written:
                continue
            if ours == written:
                self._infer(table, position, "altered before, unseen")
            elif (known := self._rows.definitions.get(name)) is not None:
                self._define(known, position, inferred=False)

    def _types_written(self, table: Table) -> int:
        """The newest write time of the user types of a table that was read."""
        used = {one for column in (*table.key, *table.columns) for one in user_types(column.type)}
        rows = (row for row in self._read_rows if row.table == "types" and row.owner[0] == table.keyspace)
        return max((row.written for row in rows if row.row["type_name"] in used), default=NEVER)

    def _present(self) -> dict[Name, tuple[Table, int]]:
        """The tables of users as they were read of the cluster, with their newest write times."""
        written: dict[Name, int] = {}
        for row in self._read_rows:
            if row.table != "types":
                written[row.owner] = max(row.written, written.get(row.owner, row.written))
        named = (((table.keyspace, table.name), table) for table in self._read.values())
        return {name: (table, written[name]) for name, table in named if name[0] not in _SYSTEM}

    def _infer(self, table: Table, position: Position, words: str) -> bool:
        """The definition that was read holds from a position on, though the log did not say so."""
        name = (table.keyspace, table.name)
        before = self._rows.definitions.get(name)
        self._rows = self._rows.without(name).with_base(self._rows_of(name), read=False, newer=True)
        if before is not None and before.id != table.id:
            self.history = self.history.drop((before,))[0]
            self._add(HistoryRecord(position, before.id, name))
        difference = self._define(table, position, inferred=False)
        if difference:
            self._note(table, f"{words}: the cluster's present definition is taken from {position} on")
        return bool(difference)

    def _rows_of(self, name: Name) -> list[KeyedRow]:
        keyspace, _ = name
        return [row for row in self._read_rows if row.owner == name or (row.table, row.owner[0]) == ("types", keyspace)]

    def _note(self, table: Table, words: str) -> None:
        self.inferred[str(table)] = words
        _LOG.warning("%s: %s", table, words)

    def _add(self, record: HistoryRecord) -> None:
        self._records.append(record)
        self.unsent.append(record)


def _with_flag(row: KeyedRow, cdc: bool) -> KeyedRow:
    return replace(row, row={**row.row, "cdc": cdc}) if row.table == "tables" else row


def _before(entry: Entry) -> Position:
    """A position from which on a definition holds for this mutation, and for none before it."""
    return Position(entry.position.epoch, entry.position.segment, entry.position.offset - 1)


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
