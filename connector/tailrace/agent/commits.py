"""The open transaction, and a session's commits: when one is due, what is in it, which segments it releases."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from tailrace.agent.limits import Limits
from tailrace.agent.notes import CommitNotes
from tailrace.agent.ports import Capture, Environment, Publisher
from tailrace.errors import RenewalError
from tailrace.history.records import HistoryRecord
from tailrace.ops.health import HealthBoard
from tailrace.publish.record import Record, Tally
from tailrace.state import ParkingLot, Resume
from tailrace_common.kafka import Pace
from tailrace_common.tracing.spans import Attributes, TraceSpan
from tailrace_schemas.avro.decode import written_of
from tailrace_schemas.position import Position
from tailrace_schemas.topics import Internal

_LAG_SECONDS: Final = 1.0
_LOG: Final = logging.getLogger("tailrace.agent")


class Transaction:
    """What was sent and is not committed yet, and whether it is time to commit.

    One after another on the same publisher; begins with the first record. It is only ever ended between mutations.

    As long as each fills up, the next may be twice as large, and as old, within the limits. A commit costs more than
    the changes in it. It has no more bytes than Kafka takes in time, as `pace` has learned.
    `clock` is monotonic, in seconds, `milliseconds` wall-clock time. `trace` begins the span of one that has changes.
    """

    def __init__(
        self,
        publisher: Publisher,
        limits: Limits,
        health: HealthBoard,
        clock: Callable[[], float],
        milliseconds: Callable[[], int],
        pace: Pace,
        trace: Callable[[], TraceSpan | None] = lambda: None,
    ) -> None:
        self._trace = trace
        self._span: TraceSpan | None = None
        self._milliseconds = milliseconds
        self._pace = pace
        self._lag_measured: dict[str, float] = {}
        self._publisher = publisher
        self._limits = limits
        self._health = health
        self._clock = clock
        self._began: float | None = None
        self._mutations = 0
        self._tally = Tally()
        self._stretch = 1
        self._committed = False

    @property
    def open(self) -> bool:
        """Whether something was sent that is not committed."""
        return self._began is not None

    @property
    def left(self) -> float:
        """Seconds until it has the age at which it is committed."""
        limits = self._limits
        # A commit takes about 0.55 ms for each partition: the more it takes, the longer it pays to fill up.
        share = self._tally.partitions / limits.partitions
        ripe = limits.seconds * max(min(self._stretch, limits.stretch_seconds), share)
        return min(ripe, limits.seconds_most) - self._age()

    @property
    def full(self) -> bool:
        """Whether to commit before the next mutation."""
        return self._began is not None and (self.room <= 0 or self.bytes_left <= 0 or self.left <= 0)

    @property
    def room(self) -> int:
        """How many more changes it takes, as far as it is known how many partitions they touch."""
        return self._limits.changes * self._stretch * max(1, self._tally.partitions) - self._tally.records

    @property
    def bytes_left(self) -> int:
        """How many more bytes it takes."""
        return self._pace.limit - self._tally.size

    def require_time(self, size: int) -> None:
        """Raise RenewalError where none is open, and one of so many bytes needs a producer whose transactions may last
        longer, or no longer so long."""
        # What comes before a large mutation, and has no changes, is read again by the session that is for it.
        if not self.open and not self._pace.suits(size, shorten=self._committed):
            seconds = self._pace.seconds
            raise RenewalError(f"transactions may last {seconds} s from now on: the next one has {size} bytes")

    def relax(self) -> None:
        """Nothing waits behind what was sent: the next is as small, and as young, as can be."""
        self._stretch = 1

    def send(self, records: Sequence[Record], mutations: int = 1) -> None:
        """The records of so many whole mutations."""
        self.send_some(records)
        self.end_mutation(mutations)

    def send_some(self, records: Sequence[Record]) -> None:
        """Some records of a mutation, which is not at its end before `end_mutation`."""
        if records:
            self._begin()
            if not self._tally.records:
                self._span = self._trace()
            self._publisher.send_all(records, () if self._span is None else self._span.headers)
            self._tally.add(records)

    def end_mutation(self, mutations: int = 1) -> None:
        """All records of so many mutations were sent."""
        self._mutations += mutations

    def note(self, topic: Internal, key: bytes, value: bytes) -> None:
        """A record of an internal topic."""
        self._begin()
        self._publisher.note(topic, key, value)

    def commit(self, resume: Resume, history: Sequence[HistoryRecord]) -> int:
        """Commit what was sent, with the position behind it; how many changes that were."""
        if self.full:
            self._stretch = min(2 * self._stretch, self._limits.stretch_changes)
        self._publisher.commit(resume, history)
        changes = self._tally.records
        self._health.count(changes=changes, mutations=self._mutations, transactions=1)
        self._health.published(self._tally.by_topic())
        self._measure_lag()
        self._health.committed(resume.position)
        if self._span is not None:
            self._span.end(self._described(resume))
            self._span = None
        self._began, self._mutations, self._tally = None, 0, Tally()
        self._committed = True
        return changes

    def close(self) -> None:
        """Give up what is open, which the publisher does not commit any more."""
        span, self._span = self._span, None
        if span is not None:
            span.end({}, "given up: published again from the last commit on")

    def _described(self, resume: Resume) -> Attributes:
        """What its span says of it: names by OpenTelemetry's conventions for messaging, as far as these have any."""
        return {
            "messaging.system": "kafka",
            "messaging.operation.type": "send",
            "messaging.batch.message_count": self._tally.records,
            "tailrace.mutations": self._mutations,
            "tailrace.topics": sorted(self._tally.by_topic()),
            "tailrace.position": str(resume.position),
        }

    def _measure_lag(self) -> None:
        """Seconds from the write to the commit of each topic's last change, at most once a second for a topic."""
        now, wall_seconds = self._clock(), self._milliseconds() / 1000
        due = {
            topic: wall_seconds - written_of(value) / 1e6
            for topic, value in self._tally.last.items()
            if now - self._lag_measured.get(topic, float("-inf")) >= _LAG_SECONDS
        }
        if due:
            self._lag_measured.update(dict.fromkeys(due, now))
            self._health.lags(due)

    def _begin(self) -> None:
        if self._began is None:
            self._began = self._clock()

    def _age(self) -> float:
        return 0.0 if self._began is None else self._clock() - self._began


class Commits:
    """Changes and position go into one transaction; then, and only then, finished segments may be released."""

    def __init__(
        self,
        environment: Environment,
        limits: Limits,
        capture: Capture,
        transaction: Transaction,
        lot: ParkingLot,
        notes: CommitNotes,
        resume: Resume,
    ) -> None:
        self._environment = environment
        self._limits = limits
        self._capture = capture
        self._transaction = transaction
        self._lot = lot
        self._notes = notes
        self.done = self._committed = resume.position
        """The position of the last mutation that was sent or passed over: the next commit's."""
        self.succeeded = False
        """Whether a transaction came through: a start alone proves nothing."""
        self.news = 0
        """How many transactions had a change, or said anything that the one before had not."""
        self._resume = resume
        self._beside: tuple[object, ...] = ()
        self._committed_ddl = resume.schema
        self._moved = environment.clock()

    def due(self) -> bool:
        """Whether to commit without any changes, as everything that was released is read."""
        return self.has_work() or self._notes.due(self.done, caught_up=True, durable=self._capture.durable)

    def has_work(self) -> bool:
        """Whether there is more to commit than that this host is still there, though no change."""
        return self._has_news() or self._is_worth_moving()

    def _has_news(self) -> bool:
        """Whether there is more than a position to commit, though no change."""
        return self._environment.schema.news or self._lot.changed

    def _is_worth_moving(self) -> bool:
        """Whether a commit without changes is due: before a release at once, else from time to time."""
        ddl_position = self._environment.schema.read_up_to
        moved = self.done is not None and self.done != self._committed
        if self.done is not None:
            news = moved or ddl_position != self._committed_ddl
            if (self._capture.finished(self.done) and news) or self._capture.news(self.done):
                return True
        rolled = ddl_position is not None and (
            self._committed_ddl is None or ddl_position.segment != self._committed_ddl.segment
        )
        return (moved or rolled) and self._environment.clock() - self._moved >= self._limits.idle_seconds

    def make_room(self, size: int) -> None:
        """Commit first where the open transaction has no room for so many bytes: of one mutation, or of several that
        fit. Raises RenewalError as `Transaction.require_time` does."""
        if size > self._transaction.bytes_left:
            self.commit_open()
        self._transaction.require_time(size)

    def commit_open(self) -> None:
        """Commit what is open, in the middle of other work: nothing is released."""
        if self._transaction.open:
            self.commit(release=False)

    def commit_full(self) -> None:
        """Commit if the transaction takes no more mutations."""
        if self._transaction.full:
            self.commit()

    def finish(self, *, release: bool) -> None:
        """Commit what is open, and the position."""
        news = self.done != self._committed or (self.done is not None and self._capture.news(self.done))
        if self._transaction.open or news or self._has_news():
            self.commit(release=release)

    def commit(self, release: bool = True, caught_up: bool = False) -> None:
        """Commit changes, position, and what is new of schema, losses and parked mutations."""
        schema, capture, done = self._environment.schema, self._capture, self.done
        losses = capture.losses
        resume = Resume(
            done,
            capture.open_segments(),
            tuple(capture.quarantined.values()),
            unread=capture.unread(done),
            reported=capture.reported(done),
            parked=self._lot.lots,
        )
        resume = schema.noted(resume)
        for topic, key, value in self._notes.records(resume, losses, caught_up, capture.durable):
            self._transaction.note(topic, key, value)
        beside = (*losses, *schema.unsent, *schema.events)
        changes = self._transaction.commit(resume, schema.unsent)
        self.news += changes > 0 or resume != self._resume or beside not in ((), self._beside)
        self._resume, self._beside = resume, beside
        schema.sent()
        self._lot.changed = False
        capture.committed(done, losses)
        self._notes.committed(losses)
        _LOG.debug("committed %d changes up to %s", changes, done)
        self.succeeded = True
        self._committed, self._committed_ddl, self._moved = resume.position, resume.schema, self._environment.clock()
        if release:
            self.release()

    def release(self) -> int:
        """Release what is committed, but no segment with DDL that may be unread: none that `schema` is not behind.

        How many segments that were.
        """
        if self._committed is None or (ddl_position := self._committed_ddl) is None:
            return 0
        upto = min(self._committed, Position(ddl_position.epoch, ddl_position.segment, -1))
        if not self._capture.finished(upto):
            return 0
        released = len(self._capture.release(upto))
        self._environment.health.count(released=released)
        return released
