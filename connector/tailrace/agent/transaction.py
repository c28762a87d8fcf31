"""The open transaction: what was sent in it, and whether it is time to commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tailrace.agent.parts import Limits, Publisher
from tailrace.capture.cdcraw import Resume
from tailrace.history.records import HistoryRecord
from tailrace.ops.health import HealthBoard
from tailrace.publish.record import Record
from tailrace_schemas.topics import Internal


class Transaction:
    """One after another on the same publisher; begins with the first record. It is only ever ended between mutations.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, publisher: Publisher, limits: Limits, health: HealthBoard, clock: Callable[[], float]) -> None:
        self._publisher = publisher
        self._limits = limits
        self._health = health
        self._clock = clock
        self._began: float | None = None
        self._changes = 0
        self._mutations = 0
        self._touched: set[tuple[str, int]] = set()
        self._by_topic: Counter[str] = Counter()

    @property
    def open(self) -> bool:
        """Whether something was sent that is not committed."""
        return self._began is not None

    @property
    def left(self) -> float:
        """Seconds until it has the age at which it is committed."""
        return self._limits.seconds - self._age()

    @property
    def full(self) -> bool:
        """Whether to commit before the next mutation."""
        enough = self._changes >= self._limits.changes * len(self._touched)
        return self._began is not None and (enough or self.left <= 0)

    def send(self, records: Iterable[Record]) -> None:
        """One mutation's records, or none."""
        for record in records:
            self._begin()
            self._publisher.send(record)
            self._changes += 1
            self._by_topic[record.topic] += 1
            self._touched.add((record.topic, record.partition))
        self._mutations += 1

    def note(self, which: Internal, key: bytes, value: bytes) -> None:
        """A record of an internal topic."""
        self._begin()
        self._publisher.note(which, key, value)

    def commit(self, resume: Resume, history: Sequence[HistoryRecord]) -> int:
        """Commit what was sent, with the position behind it; how many changes that were."""
        self._publisher.commit(resume, history)
        changes = self._changes
        self._health.count(changes=changes, mutations=self._mutations, transactions=1)
        self._health.published(self._by_topic)
        self._health.committed(resume.position)
        self._began, self._changes, self._mutations = None, 0, 0
        self._touched.clear()
        self._by_topic.clear()
        return changes

    def _begin(self) -> None:
        if self._began is None:
            self._began = self._clock()

    def _age(self) -> float:
        return 0.0 if self._began is None else self._clock() - self._began
