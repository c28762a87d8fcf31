"""The schema of a running agent: follows the log's DDL, and gives each commit what goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tailrace.commitlog.frames import Entry
from tailrace.history.events import SchemaEvent
from tailrace.history.records import BEGINNING, HistoryRecord
from tailrace.history.schema import SchemaDifference, SchemaHistory
from tailrace.schema.bypassing import Bypass
from tailrace.schema.cluster_view import ClusterView, SchemaReader, SchemaSource
from tailrace.schema.ddl_log import Gap
from tailrace.schema.definitions import LiveDefinitions
from tailrace.schema.gaps import cross
from tailrace.schema.logged import apply_ddl
from tailrace.schema.restored import restore, seed
from tailrace.schema.truncations import Truncations
from tailrace.schema.unsent import UnsentRecords
from tailrace.schema.writes import adopt, as_read
from tailrace.segments.unindexed import interest_in
from tailrace.state import Resume
from tailrace_schemas.position import Position


class LiveSchema:
    """The present history. `hint` may be called from any thread; everything else from the run loop's.

    It outlives sessions with Kafka: what was read of a segment that is gone since cannot be read again.
    """

    def __init__(self, reader: SchemaReader, log: SchemaSource, unsent: UnsentRecords | None = None) -> None:
        self._view = ClusterView(reader)
        self._log = log
        self._unsent = UnsentRecords() if unsent is None else unsent
        self._live = LiveDefinitions(self._view, self._unsent)
        self._begun = False
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
