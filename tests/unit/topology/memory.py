"""The generations topic in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tailrace_common.kafka import Record

NOW = 1_760_000_000_000


@dataclass
class MemoryTopic:
    """A topic in memory. `before` is called with the number of records before each append; `now_ms` is the broker's."""

    records: list[Record] = field(default_factory=list)
    before: Callable[[int], None] = lambda _: None
    now_ms: Callable[[], int] = lambda: NOW

    def append(self, key: bytes, value: bytes) -> int:
        """Append one record, at the broker's time."""
        self.before(len(self.records))
        now = self.now_ms()
        self.records.append(Record(len(self.records), now, key, value))
        return now


class MemorySource:
    """One reader's place in the topic."""

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic
        self._unread = 0

    def read_to_end(self) -> Iterator[Record]:
        """What was not read yet."""
        end = len(self._topic.records)
        while self._unread < end:
            self._unread += 1
            yield self._topic.records[self._unread - 1]

    def close(self) -> None:
        """Nothing to close."""
