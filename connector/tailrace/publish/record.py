"""A record as it goes to Kafka."""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr


@mypyc_attr(acyclic=True)
class Record:
    """One record; the partition is ours to choose, never the client's (docs/contracts.md section 4).

    No dataclass: made by compiled code, one takes several times as long.
    """

    __slots__ = ("key", "partition", "topic", "value")

    def __init__(self, topic: str, partition: int, key: bytes | None, value: bytes) -> None:
        self.topic = topic
        self.partition = partition
        self.key = key
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        return f"Record({self.topic!r}, {self.partition}, {self.key!r}, {self.value!r})"

    def _fields(self) -> tuple[str, int, bytes | None, bytes]:
        return self.topic, self.partition, self.key, self.value


def size_of(records: Iterable[Record]) -> int:
    """The bytes of their keys and values."""
    return sum([len(record.value) + len(record.key or b"") for record in records])


class Tally:
    """How many records each partition of each topic got, their bytes, and the value of each topic's last."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[int, int]] = {}
        self.last: dict[str, bytes] = {}
        self.records = 0
        self.size = 0

    def add(self, records: Iterable[Record]) -> None:
        """Count these too."""
        topic = ""
        counts: dict[int, int] = {}
        previous: Record | None = None
        for record in records:
            # Most often the very same text as the one before has.
            if record.topic is not topic:
                if previous is not None:
                    self.last[topic] = previous.value
                topic = record.topic
                partitions = self._counts.get(topic)
                if partitions is None:
                    partitions = self._counts[topic] = {}
                counts = partitions
            counts[record.partition] = counts.get(record.partition, 0) + 1
            self.records += 1
            self.size += len(record.value) if record.key is None else len(record.value) + len(record.key)
            previous = record
        if previous is not None:
            self.last[topic] = previous.value

    @property
    def partitions(self) -> int:
        """How many partitions got records."""
        return sum([len(counts) for counts in self._counts.values()])

    def by_topic(self) -> dict[str, int]:
        """The records of each topic."""
        return {topic: sum(counts.values()) for topic, counts in self._counts.items()}
