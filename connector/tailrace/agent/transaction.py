"""The open transaction: what was sent in it, and whether it is time to commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tailrace.agent.parts import Limits, Publisher
from tailrace.errors import RenewalError
from tailrace.history.records import HistoryRecord
from tailrace.ops.health import HealthBoard
from tailrace.publish.record import Record, Tally
from tailrace.state.resume import Resume
from tailrace_common.kafka import Pace
from tailrace_common.tracing.spans import Attributes, TraceSpan
from tailrace_schemas.avro.decode import written_of
from tailrace_schemas.topics import Internal

_LAG_SECONDS: Final = 1.0


class Transaction:
    """One after another on the same publisher; begins with the first record. It is only ever ended between mutations.

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
