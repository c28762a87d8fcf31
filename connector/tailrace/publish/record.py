"""A record as it goes to Kafka, how many went, and what of the log was published with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from mypy_extensions import mypyc_attr

from tailrace.commitlog.frames import Entry
from tailrace.commitlog.mutation import first_table_bytes
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position

# Of mutations of several tables: TRUNCATE writes its record within a second or so of the place that it truncated up to.
_REMEMBERED: Final = 1024

PositionParts = tuple[int, int, int]
"""Epoch, segment and offset, as a Position has them; making one of each mutation would take longer."""


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


class PublishedPlaces:
    """Where the tables were last written to, of what was published: whether a change behind a place in the log was.

    What this session has published, table by table.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, PositionParts] = {}
        self._of_several: deque[tuple[PositionParts, bytes]] = deque(maxlen=_REMEMBERED)

    def add(self, entries: Sequence[Entry]) -> None:
        """These mutations were published, in the order of the log."""
        last = self._last
        for entry in entries:
            try:
                tables, identity = first_table_bytes(entry.payload, entry.version)
            except DecodeError:
                continue  # it was set aside
            last[identity] = parts = (entry.epoch, entry.segment, entry.offset)
            if tables > 1:
                self._of_several.append((parts, entry.payload))

    def may_have(self, table_id: UUID, after: Position) -> bool:
        """Whether a change of a table behind `after` may be published already."""
        identity, parts = table_id.bytes, (after.epoch, after.segment, after.offset)
        if len(self._of_several) == _REMEMBERED and parts < self._of_several[0][0]:
            return True  # what stood there is forgotten
        if self._last.get(identity, parts) > parts:
            return True
        # A payload names its tables by their ids; other bytes that equal one would only make the answer a careful one.
        return any(published > parts and identity in payload for published, payload in self._of_several)
