"""The schema of a running agent: what it begins with, the log's DDL that it follows, and what goes with each commit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from tailrace.commitlog.frames import Entry
from tailrace.history.events import SchemaEvent, Subject
from tailrace.history.records import BEGINNING, HistoryRecord, history_of
from tailrace.history.rows import SchemaRows
from tailrace.history.schema import SchemaDifference, SchemaHistory
from tailrace.schema.announcements import object_told, objects_of
from tailrace.schema.cluster_view import SYSTEM, Bypass, ClusterView, SchemaReader, SchemaSource
from tailrace.schema.ddl_log import Gap
from tailrace.schema.definitions import LiveDefinitions, UnsentRecords
from tailrace.schema.logged import adopt, apply_ddl, as_read, cross, place_reads
from tailrace.schema.truncations import Truncations
from tailrace.segments.kept import interest_in
from tailrace.state import Resume
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table

_LOG: Final = logging.getLogger("tailrace.capture")
Known = tuple[Table | None, Table | None]
"""A table's last definition by the log, and the one that was read of the cluster last."""


class LiveSchema:
    """The present history. `hint` may be called from any thread; everything else from the run loop's.

    It outlives sessions with Kafka: what was read of a segment that is gone since cannot be read again.
    """

    def __init__(self, reader: SchemaReader, log: SchemaSource, unsent: UnsentRecords | None = None) -> None:
        self._view = ClusterView(reader)
        self._log = log
        self._unsent = UnsentRecords() if unsent is None else unsent
        self._live = LiveDefinitions(self._view, self._unsent)
        self._begun = self._reads_placed = False
        self._read_up_to: Position | None = None
        self._waiting: list[tuple[Position, Entry | Gap]] = []

    @property
    def history(self) -> SchemaHistory:
        """The definitions by position."""
        return self._live.history

    @property
    def truncations(self) -> Truncations:
        """Those that are read and not yet published."""
        return self._live.truncations

    @property
    def inferred(self) -> dict[str, str]:
        """What was concluded, not read in the log, by table, for people."""
        return self._live.inferred

    @property
    def bypassing(self) -> Sequence[Bypass]:
        """The tables with cdc whose writes never reach the log, as the cluster was read last."""
        return self._view.bypassing

    @property
    def tells_epochs(self) -> bool:
        """Whether the log has told of the epochs of the cluster's metadata (Cassandra 6)."""
        return self._live.metadata_epoch is not None

    def known(self, table_id: UUID) -> Known:
        """What there is to decode a table's changes by."""
        return self.history.newest(table_id), self._view.tables.get(table_id)

    def problem(self, table_id: UUID) -> str:
        """Why a table that the cluster has is without a definition; empty where nothing is known of that."""
        return self._view.problems.get(table_id, "")

    # -- reads of the cluster

    def hint(self) -> None:
        """The schema may have changed."""
        self._view.hint()

    @property
    def hinted(self) -> bool:
        """Whether there was a hint since the last read."""
        return self._view.hinted

    def learn(self) -> SchemaDifference:
        """Read the cluster's schema; see LiveDefinitions. Raises ServiceError, then nothing changed."""
        return self._live.learn()

    def as_read(self, entry: Entry) -> SchemaHistory:
        """The history in which a mutation's tables have the columns that were read last, from it on."""
        return as_read(self._live, entry)

    def adopt(self, trial: SchemaHistory, entry: Entry) -> None:
        """Let a history of `as_read` be the present one."""
        adopt(self._live, trial, entry)

    # -- the log

    @property
    def read_up_to(self) -> Position | None:
        """Up to where the log was read for DDL, and that taken into account."""
        return self._read_up_to

    @property
    def behind(self) -> bool:
        """Whether `follow` stopped for all that is not committed yet: commit it, and follow again."""
        return self._unsent.full()

    def begin(self, records: Sequence[HistoryRecord], resume: Resume, epoch: int) -> None:
        """A session with Kafka begins, which has these records, and its offsets record.

        In the first one the records are what the log said so far. Without any the cluster's definitions hold from the
        beginning of the log.
        """
        first, self._begun = not self._begun, True
        complete = bool(records) and resume.schema != BEGINNING  # else a new host's were committed in part
        if first:
            if complete:
                restore(self._live, records, resume)
            else:
                seed(self._live)
            self._read_up_to = resume.schema if complete else None
            self._log.begin(self._read_up_to, epoch)
        recorded = {(record.position, record.table_id) for record in records}
        self._unsent.remove(recorded)
        self._live.announced.begin(recorded, resume.schema, from_start=first and not complete)
        self.truncations.begin(resume)
        self.truncations.ask(self._view.state.truncated)

    def follow(self, until: Position | None) -> bool:
        """Read the log's DDL on, at least up to a position; whether it changed anything. Raises ServiceError, also
        where DDL may have been missed and the cluster cannot be asked; then nothing of that is passed over."""
        if not self._begun or self._unsent.full():
            return False
        self._waiting += [(entry.position, entry) for entry in self._log.read(until)]
        self._waiting += [(gap.until, gap) for gap in self._log.gaps]
        self._log.gaps.clear()
        self._waiting.sort(key=lambda item: item[0])
        self._live.read_up_to = self._log.read_up_to
        if not self._reads_placed and (began := self._log.began) is not None:
            self._reads_placed = True
            place_reads(self._live, began)
        changed = False
        if any(isinstance(waiting, Gap) for _, waiting in self._waiting):
            changed |= bool(self.learn())
        while self._waiting:
            position, waiting = self._waiting[0]
            if isinstance(waiting, Gap):
                changed |= cross(self._live, waiting)
            elif waiting.position > self._live.applied:
                changed |= apply_ddl(self._live, waiting)
            del self._waiting[0]
            if self._unsent.full():
                self._read_up_to = max(position, self._read_up_to or position)
                return changed
        self._read_up_to = self._log.read_up_to
        self._log.sift(lambda: interest_in(self.history))
        return changed

    # -- commits

    @property
    def unsent(self) -> Sequence[HistoryRecord]:
        """What the next commit gives to the history topic, together with what follows from it.

        What was read of the cluster at a new host's start goes in pieces, before all else.
        """
        return self._unsent.piece

    @property
    def events(self) -> Sequence[SchemaEvent]:
        """What the next commit gives to `.schema-changes`, together with what follows from it."""
        return self._live.announced.unsent if self._unsent.is_whole else ()

    @property
    def news(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._unsent or self._live.announced.unsent)

    def noted(self, resume: Resume) -> Resume:
        """An offsets record with how far this came."""
        up_to = self.history.metadata
        return replace(
            resume,
            schema=self._read_up_to if self._unsent.is_whole else BEGINNING,
            truncations=tuple(self.truncations.pending),
            truncated=self.truncations.told(),
            metadata=None if up_to is None else (up_to, self._live.metadata_epoch),
        )

    def sent(self) -> None:
        """Everything unsent is committed."""
        if self._unsent.is_whole:
            self._live.announced.sent()
            self.truncations.sent()
        self._unsent.sent()


def restore(live: LiveDefinitions, records: Sequence[HistoryRecord], resume: Resume) -> None:
    """Begin with what the log said so far. What was read of the cluster holds for ids that the records lack."""
    last = {record.table_id: record for record in records}
    dropped = (record for record in last.values() if not (record.rows or record.unreadable))
    live.dropped = {record.table_id: record.position for record in dropped if record.subject is Subject.TABLE}
    unreadable = [record for record in last.values() if record.unreadable]
    readable = [record for record in records if not (record.unreadable or last[record.table_id].unreadable)]
    newest = {(record.subject, record.name): record for record in readable}.values()
    live.unsure = {record.name for record in newest if record.inferred}
    ordered = sorted(newest, key=lambda record: record.position)
    rows = [row for record in ordered if record.subject is not Subject.KEYSPACE for row in record.rows]
    live.objects = objects_of(ordered)
    names = {record.name for record in newest if _was_read(record)}
    live.rows = SchemaRows().with_base(rows, read=False).as_read(names).with_base(live.view.rows, read=True)
    for record in newest:
        if record.dropped is not None:
            live.rows = live.rows.gone(record.name, record.dropped)
    live.applied = max((live.applied, *(record.position for record in records)))
    read = [timeline.newest for timeline in live.history.timelines.values()]
    live.history, difference = history_of(records).learn(read)
    live.learned = {table.id for table in difference.added}
    for record in unreadable:
        _replace(live, record)
    if resume.metadata is not None:
        up_to, live.metadata_epoch = resume.metadata
        live.history = live.history.up_to(up_to)


def _was_read(record: HistoryRecord) -> bool:
    """Whether a table's rows are those of a read of the cluster, which the log had not come to."""
    return record.subject is Subject.TABLE and (record.inferred or record.position == BEGINNING)


def seed(live: LiveDefinitions) -> None:
    """Begin with the cluster's definitions, which hold from the beginning of the log."""
    tables = [
        HistoryRecord(BEGINNING, table.id, name, live.rows.rows(name))
        for name, table in sorted(live.rows.definitions.items())
        if name[0] not in SYSTEM
    ]
    live.learned.clear()
    live.objects, objects = live.view.objects()
    live.unsent.replace([*tables, *(object_told(change, BEGINNING)[1] for change in objects)])
    live.history = live.history.up_to(live.view.state.metadata)


def _replace(live: LiveDefinitions, record: HistoryRecord) -> None:
    """Take the cluster's present definition where Kafka's record of the last one cannot be read."""
    words = f"the record of the schema history at {record.position} cannot be read ({record.unreadable})"
    table = live.view.tables.get(record.table_id)
    if table is None:
        live.inferred[f"table id {record.table_id}"] = words
        _LOG.error("%s, and the cluster has no table with id %s: the record is skipped", words, record.table_id)
        return
    live.history, _ = live.history.define(record.position, (table,), inferred=True)
    live.unsure.add((table.keyspace, table.name))
    live.note(table, f"{words}: the cluster's present definition is taken, and its changes are marked")
