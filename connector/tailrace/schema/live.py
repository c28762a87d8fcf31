"""The schema history of a running agent: the log's DDL by position, reads of the cluster where the log is silent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from tailrace.commitlog.entry import Entry
from tailrace.commitlog.model import Mutation
from tailrace.commitlog.mutation import decode_mutation
from tailrace.commitlog.times import oldest_write
from tailrace.errors import UnknownTableError
from tailrace.history.cells import NEVER
from tailrace.history.events import SchemaEvent, Subject
from tailrace.history.objects import Objects, types_of
from tailrace.history.records import BEGINNING, HistoryRecord, history_of
from tailrace.history.rows import KeyedRow, Name, SchemaRows
from tailrace.history.schema import SchemaDifference, SchemaHistory
from tailrace.schema.announcements import (
    Announcements,
    Told,
    ddl_events,
    inferred_event,
    object_told,
    objects_of,
    truncation_event,
)
from tailrace.schema.cluster_view import SYSTEM, ClusterView, SchemaReader, SchemaSource, told
from tailrace.schema.ddl_log import WATCHED, Gap
from tailrace.schema.truncations import Truncations, metadata_epoch, truncations_in
from tailrace.schema.unsent import UnsentRecords
from tailrace.segments.unindexed import ids_to_publish
from tailrace.state.resume import Resume
from tailrace.state.truncation import Truncation
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table

_LOG: Final = logging.getLogger("tailrace.capture")
_A_SECOND: Final = 1_000_000


class LiveSchema:
    """The present history. `hint` may be called from any thread; everything else from the run loop's.

    It outlives sessions with Kafka: what was read of a segment that is gone since cannot be read again.
    """

    def __init__(self, reader: SchemaReader, log: SchemaSource, unsent: UnsentRecords | None = None) -> None:
        self._view = ClusterView(reader)
        self._log = log
        self._hinted = threading.Event()
        self._rows = SchemaRows()
        self._watched = {table.id: table for table in WATCHED}
        self._objects = Objects()
        self._announced = Announcements()
        self._seen: int | None = None  # the metadata epoch whose DDL comes next in the log, or came last
        self._unsent = UnsentRecords() if unsent is None else unsent
        self._begun = False
        self._applied = BEGINNING
        self._place: Position | None = None
        self._waiting: list[tuple[Position, Entry | Gap]] = []
        self._unsure: set[Name] = set()
        self.inferred: dict[str, str] = {}
        """What was concluded, not read in the log, by table, for people."""
        self.truncations = Truncations()
        """Those that are read and not yet published."""
        self.history = SchemaHistory().learn(system_tables())[0]

    @property
    def unsent(self) -> Sequence[HistoryRecord]:
        """What the next commit gives to the history topic, together with what follows from it.

        What was read of the cluster at a new host's start goes in pieces, before all else.
        """
        return self._unsent.piece

    @property
    def events(self) -> Sequence[SchemaEvent]:
        """What the next commit gives to `.schema-changes`, together with what follows from it."""
        return self._announced.unsent if self._unsent.is_whole else ()

    @property
    def news(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._unsent or self._announced.unsent)

    @property
    def behind(self) -> bool:
        """Whether `follow` stopped for all that is not committed yet: commit it, and follow again."""
        return self._unsent.full()

    @property
    def tells_epochs(self) -> bool:
        """Whether the log has told of the epochs of the cluster's metadata (Cassandra 6)."""
        return self._seen is not None

    def problem(self, table_id: UUID) -> str:
        """Why a table that the cluster has is without a definition; empty where nothing is known of that."""
        return self._view.problems.get(table_id, "")

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
        self._view.read()
        self._watched = {id: self._view.widened(table) for id, table in self._watched.items()}
        self._rows = self._rows.with_base(self._view.rows, read=True)
        self.history, difference = self.history.learn(self._view.tables.values())
        return told(difference)

    # -- the log

    @property
    def place(self) -> Position | None:
        """Up to where the log was read for DDL, and that taken into account."""
        return self._place

    def begin(self, records: Sequence[HistoryRecord], resume: Resume, epoch: int) -> None:
        """A session with Kafka begins, which has these records, and its offsets record.

        In the first one they are what the log said so far, and what was read of the cluster before is only there for
        ids that they lack. Without any the cluster's definitions hold from the beginning of the log.
        """
        first, self._begun = not self._begun, True
        complete = bool(records) and resume.schema != BEGINNING  # else a new host's were committed in part
        if first:
            if complete:
                self._restore(records, resume)
            else:
                self._seed()
            self._place = resume.schema if complete else None
            self._log.begin(self._place, epoch)
        recorded = {(record.position, record.table_id) for record in records}
        self._unsent.remove(recorded)
        self._announced.begin(recorded, resume.schema, anew=first and not complete)
        self.truncations.begin(resume)
        self.truncations.ask(self._view.state.truncated)

    def noted(self, resume: Resume) -> Resume:
        """An offsets record with how far this came."""
        up_to = self.history.metadata
        return replace(
            resume,
            schema=self._place if self._unsent.is_whole else BEGINNING,
            truncations=tuple(self.truncations.pending),
            truncated=self.truncations.told(),
            metadata=None if up_to is None else (up_to, self._seen),
        )

    def follow(self, until: Position | None) -> bool:
        """Read the log's DDL on, at least up to a position; whether it changed anything. Raises ServiceError, also
        where DDL may have been missed and the cluster cannot be asked; then nothing of that is passed over."""
        if not self._begun or self._unsent.full():
            return False
        self._waiting += [(entry.position, entry) for entry in self._log.read(until)]
        self._waiting += [(gap.until, gap) for gap in self._log.gaps]
        self._log.gaps.clear()
        self._waiting.sort(key=lambda item: item[0])
        changed = False
        if any(isinstance(waiting, Gap) for _, waiting in self._waiting):
            changed |= bool(self.learn())
        while self._waiting:
            position, waiting = self._waiting[0]
            if isinstance(waiting, Gap):
                changed |= self._cross(waiting)
            elif waiting.position > self._applied:
                changed |= self._apply(waiting)
            del self._waiting[0]
            if self._unsent.full():
                self._place = max(position, self._place or position)
                return changed
        self._place = self._log.place
        self._log.sift(lambda: ids_to_publish(self.history))
        return changed

    def as_read(self, entry: Entry) -> SchemaHistory:
        """The history in which the columns that were read last hold from a mutation on, for its tables.

        The cdc flag is the log's still: the cluster's may be that of DDL which stands further on.
        """
        position = _before(entry)
        pairs = (
            (table, self.history.table(id, position))
            for id, table in self._view.tables.items()
            if id.bytes in entry.payload
        )
        used = (replace(table, cdc=existing.cdc) for table, existing in pairs if existing is not None)
        trial = self.history.define(
            position, (table for table in used if table != self.history.table(table.id, position)), inferred=True
        )[0]
        # A log that tells of epochs will tell of the one that a write is ahead by; in another the read is all there is.
        return trial if self._seen is not None else trial.up_to(self._view.state.metadata)

    def adopt(self, trial: SchemaHistory, entry: Entry) -> None:
        """Let a history of `as_read` be the present one, as it explains what the log's own word does not."""
        position = _before(entry)
        for id, timeline in trial.timelines.items():
            if timeline is self.history.timelines.get(id):
                continue
            table = timeline.at(position)
            name = (table.keyspace, table.name)
            rows = tuple(_with_flag(row, table.cdc) for row in self._view.rows_of(name))
            if self._rows.definitions.get(name) == self.history.table(id, position):  # no DDL of it was read ahead
                self._rows = self._rows.without(name).with_base(rows, read=True)
            self._unsure.add(name)
            self._unsent.add(HistoryRecord(position, id, name, rows, inferred=True))
            previous, written = self.history.table(id, position), max(row.written for row in rows)
            self._announced.tell(inferred_event(previous, table, position, written), (position, id))
            untold = "a later definition than" if trial.metadata != self.history.metadata else "columns that no"
            self._note(table, f"a write at {entry.position} has {untold} DDL told of: the cluster's word is taken")
        self.history = trial

    def sent(self) -> None:
        """Everything unsent is committed."""
        if self._unsent.is_whole:
            self._announced.sent()
            self.truncations.sent()
        self._unsent.sent()

    def _restore(self, records: Sequence[HistoryRecord], resume: Resume) -> None:
        last = {record.table_id: record for record in records}
        unreadable = [record for record in last.values() if record.unreadable]
        readable = [record for record in records if not (record.unreadable or last[record.table_id].unreadable)]
        newest = {(record.subject, record.name): record for record in readable}.values()
        self._unsure = {record.name for record in newest if record.inferred}
        ordered = sorted(newest, key=lambda record: record.position)
        rows = [row for record in ordered if record.subject is not Subject.KEYSPACE for row in record.rows]
        self._objects = objects_of(ordered)
        if not self._objects.known:  # a history from before they were kept
            self._objects, _ = self._view.objects(types=False)
        self._rows = SchemaRows().with_base(rows, read=False).with_base(self._view.rows, read=True)
        self._applied = max((self._applied, *(record.position for record in records)))
        read = [timeline.newest for timeline in self.history.timelines.values()]
        self.history = history_of(records).learn(read)[0]
        for record in unreadable:
            self._replace(record)
        if resume.metadata is not None:
            up_to, self._seen = resume.metadata
            self.history = self.history.up_to(up_to)

    def _replace(self, record: HistoryRecord) -> None:
        """Take the cluster's present definition where Kafka's record of the last one cannot be read."""
        words = f"the record of the schema history at {record.position} cannot be read ({record.unreadable})"
        table = self._view.tables.get(record.table_id)
        if table is None:
            self.inferred[f"table id {record.table_id}"] = words
            _LOG.error("%s, and the cluster has no table with id %s: the record is skipped", words, record.table_id)
            return
        self.history, _ = self.history.define(record.position, (table,), inferred=True)
        self._unsure.add((table.keyspace, table.name))
        self._note(table, f"{words}: the cluster's present definition is taken, and its changes are marked")

    def _seed(self) -> None:
        tables = [
            HistoryRecord(BEGINNING, table.id, name, self._rows.rows(name))
            for name, table in sorted(self._rows.definitions.items())
            if name[0] not in SYSTEM
        ]
        self._objects, objects = self._view.objects()
        self._unsent.replace([*tables, *(object_told(change, BEGINNING)[1] for change in objects)])
        self.history = self.history.up_to(self._view.state.metadata)

    def _apply(self, entry: Entry) -> bool:
        """One mutation of a table that is watched, in position order. Raises ServiceError, then it is not passed."""
        try:
            mutation = decode_mutation(entry.payload, entry.version, self._watched.get)
            if mutation.updates[0].table.keyspace == "system":
                self._take(mutation, entry.position)
                self._applied = entry.position
                return False
            previous_rows, (rows, change) = self._rows, self._rows.apply(mutation)
            objects, changes = self._objects.apply(mutation)
        except (UnknownTableError, DecodeError) as error:
            return self._skip(entry, error)
        self._applied = entry.position
        self._rows, self._objects = rows, objects
        self.history = self.history.up_to(self._seen)
        keyspace = mutation.updates[0].key.decode()
        if keyspace not in SYSTEM:
            self._tell(ddl_events(previous_rows, mutation, change, changes, entry.position, self._seen))
        for problem in change.problems if keyspace not in SYSTEM else ():  # those are built in
            _LOG.warning("the DDL at %s cannot be used; changes of that table are parked: %s", entry.position, problem)
        dropped_ids = {table.id for table in change.dropped} - {table.id for table in change.defined}
        self.history, dropped = self.history.drop(table for table in change.dropped if table.id in dropped_ids)
        for table in change.dropped:
            self.truncations.forget(table.id)
            if table.id in dropped_ids and table.keyspace not in SYSTEM:
                self._unsent.add(HistoryRecord(entry.position, table.id, (table.keyspace, table.name)))
        added, altered = list[Table](), list[Table]()
        for table in change.defined:
            unsure = (table.keyspace, table.name) in self._unsure
            difference = self._define(table, entry.position, inferred=unsure, metadata=self._seen)
            added += difference.added
            altered += difference.altered
        self._explained(entry.position)
        return bool(told(SchemaDifference(tuple(added), tuple(altered), dropped.dropped), entry.position))

    def _take(self, mutation: Mutation, position: Position) -> None:
        """What the node logs of itself: truncations, and the metadata's epochs."""
        if mutation.updates[0].table.name == "local_metadata_log":
            self._seen = int.from_bytes(mutation.updates[0].key, "big")
            self.history = self.history.up_to(self._seen - 1)
        elif (epoch := metadata_epoch(mutation)) is not None:
            self._seen = max(epoch, self._seen or 0)
            self.history = self.history.up_to(epoch)
        for truncation in truncations_in(mutation, position):
            if self.history.table(truncation.table_id, position) is not None and self.truncations.logged(truncation):
                self._truncated(truncation)

    def _truncated(self, one: Truncation) -> None:
        table = self.history.table(one.table_id, one.position)
        if table is None or table.keyspace in SYSTEM:
            return
        self._announced.tell(truncation_event(one, table))
        if table.cdc:
            self.truncations.add(one, self._log.place)

    def _tell(self, found: Iterable[Told]) -> None:
        for event, record in found:
            if record is not None:
                self._unsent.add(record)
                self._announced.tell(event, (record.position, record.table_id))
            elif event.table is not None:
                self._announced.tell(event, (event.position, event.table.id))

    def _define(
        self, table: Table, position: Position, *, inferred: bool, metadata: int | None = None
    ) -> SchemaDifference:
        """A definition, which its rows make by now, holds from a position on; for sure, or not."""
        name = (table.keyspace, table.name)
        self.history, difference = self.history.define(position, (table,), inferred=inferred, metadata=metadata)
        if name[0] not in SYSTEM:
            self._unsent.add(HistoryRecord(position, table.id, name, self._rows.rows(name), inferred, metadata))
        if inferred:
            self._unsure.add(name)
        else:
            self._unsure.discard(name)
        return difference

    # -- what the log did not say

    def _skip(self, entry: Entry, error: Exception) -> bool:
        """A mutation that cannot be read is a hole as small as itself: what the cluster says of it is taken."""
        words = f"DDL at {entry.position} in {entry.file} cannot be read: {error}; the cluster's word is taken for it"
        self.learn()
        self._applied = entry.position
        self.inferred["system_schema"] = words
        _LOG.error("%s", words)
        written = oldest_write(entry.payload, entry.version)
        return self._cross(Gap(_before(entry), entry.position, None if written is None else written + _A_SECOND))

    def _cross(self, gap: Gap) -> bool:
        """DDL may have stood where the log could not be read: what was altered there, by the rows' write times?

        A table whose rows are newer than the log's, and older than what follows the gap, was altered in the gap: its
        present definition holds from there on. One that is newer still was altered later, and the log will say so;
        but it may have been altered in the gap too, so that what stands up to then is marked.
        """
        changed = False
        self.history = self.history.up_to(self._view.state.metadata)
        for truncation in self.truncations.missed(self._view.state.truncated, gap.until, gap.written):
            self._truncated(truncation)
        for name, (table, written) in self._view.present().items():
            newest = self.history.newest(table.id)
            if written <= self._rows.written(name):
                # Its own rows are known; but those of its user types?
                written = self._view.types_written(table) if newest is not None and newest != table else NEVER
            if written == NEVER:
                continue
            words = f"altered unseen between {gap.after} and {gap.until}"
            if gap.written is None or written < gap.written:
                changed |= self._infer(table, gap.until, words)
            elif newest is not None and newest == self._rows.definitions.get(name):
                self._define(newest, gap.until, inferred=True)
                self._note(newest, f"may have been {words}: changes up to its next DDL are marked schema_inferred")
        return changed

    def _explained(self, position: Position) -> None:
        """The log has come to the newest DDL that the cluster has of a table: nothing is unsure from here on."""
        for name, (table, written) in (self._view.present() if self._unsure else {}).items():
            logged = self._rows.written(name)
            if name not in self._unsure or logged < written:
                continue
            if logged == written:
                self._infer(table, position, "altered before, unseen")
            elif (definition := self._rows.definitions.get(name)) is not None:
                self._define(definition, position, inferred=False)

    def _infer(self, table: Table, position: Position, words: str) -> bool:
        """The definition that was read holds from a position on, though the log did not say so."""
        name = (table.keyspace, table.name)
        previous = self._rows.definitions.get(name)
        self._rows = self._rows.without(name).with_base(self._view.rows_of(name), read=False, newer=True)
        self._objects, types = self._objects.become(types_of(self._rows.rows(name)))
        written = self._view.types_written(table)
        self._tell(object_told(change, position, written, inferred=True) for change in types)
        if previous is not None and previous.id != table.id:
            self.history = self.history.drop((previous,))[0]
            self._unsent.add(HistoryRecord(position, previous.id, name))
        difference = self._define(table, position, inferred=False)
        if difference:
            written = max(self._rows.written(name), self._view.types_written(table))
            self._announced.tell(inferred_event(previous, table, position, written), (position, table.id))
            self._note(table, f"{words}: the cluster's present definition is taken from {position} on")
        return bool(difference)

    def _note(self, table: Table, words: str) -> None:
        self.inferred[str(table)] = words
        _LOG.warning("%s: %s", table, words)


def _with_flag(row: KeyedRow, cdc: bool) -> KeyedRow:
    return replace(row, row={**row.row, "cdc": cdc}) if row.table == "tables" else row


def _before(entry: Entry) -> Position:
    """A position from which on a definition holds for this mutation, and for none before it."""
    return Position(entry.position.epoch, entry.position.segment, entry.position.offset - 1)
