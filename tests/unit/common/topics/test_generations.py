"""The reader of generations over a partition in memory."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from tailrace_common.kafka import Record
from tailrace_common.topics.generations import GenerationReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generation_records import Proposal, encode_proposal
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import LEEWAY_MS, Mark, build_generation

NOW = 1_760_000_000_000
RING = Ring((Node("a", "dc1", (0,)),))


class MemoryPartition:
    """A partition whose records are appended at a given time."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.unread = 0
        self.closed = False

    def append(self, key: bytes, value: bytes, at: int = NOW) -> None:
        """Add a record."""
        self.records.append(Record(len(self.records), at, key, value))

    def read_to_end(self) -> Iterator[Record]:
        """What was not read yet."""
        while self.unread < len(self.records):
            self.unread += 1
            yield self.records[self.unread - 1]

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


def _publish(partition: MemoryPartition, n: int, timestamp: int, predecessor: int | None = None) -> None:
    generation = build_generation(RING, timestamp=timestamp, seed=n)
    proposal = Proposal(uuid=UUID(int=n), predecessor=predecessor, ring=RING, generation=generation)
    for key, value in encode_proposal(proposal):
        partition.append(key, value)


def test_an_empty_topic_has_no_generation() -> None:
    reader = GenerationReader(MemoryPartition(), now=lambda: 0.0)
    assert reader.refresh() == ()
    assert reader.latest is None
    with pytest.raises(ServiceError, match="no valid generation"):
        reader.operating(0)


def test_refresh_takes_what_is_new() -> None:
    partition = MemoryPartition()
    reader = GenerationReader(partition, now=lambda: NOW / 1000)
    _publish(partition, 1, NOW)
    assert [found.timestamp for found in reader.refresh()] == [NOW]
    assert partition.unread == 2
    partition.append(b"noise", b"")
    _publish(partition, 2, NOW + 65_000, NOW)
    _publish(partition, 3, NOW + 65_001, NOW)
    assert reader.published == reader.refresh()[:1]
    assert [found.uuid.int for found in reader.published] == [1, 2]
    assert reader.latest is reader.published[1]


def test_write_times_later_than_reading_and_leeway_are_ahead() -> None:
    clock = iter([NOW / 1000, NOW / 1000 + 10])
    partition = MemoryPartition()
    _publish(partition, 1, NOW)
    reader = GenerationReader(partition, now=lambda: next(clock))
    reader.refresh()
    (first,) = reader.published
    written = (NOW + LEEWAY_MS + 1) * 1000
    assert reader.operating(written - 1) == (first, None)
    assert reader.operating(written) == (first, Mark.AHEAD)
    assert reader.operating(NOW * 1000 - 1) == (first, Mark.BEFORE_FIRST)
    reader.refresh()
    assert reader.operating(written) == (first, None)


def test_what_is_known_counts_from_before_the_reading() -> None:
    """A generation that is announced while we read may be missed: the time of its end would promise too much."""
    times = [NOW / 1000]

    class Slow(MemoryPartition):
        def read_to_end(self) -> Iterator[Record]:
            times[0] += 60
            return super().read_to_end()

    reader = GenerationReader(Slow(), now=lambda: times[0])
    reader.refresh()
    assert reader.known_until == NOW + LEEWAY_MS


def test_the_reader_closes_its_source() -> None:
    partition = MemoryPartition()
    with GenerationReader(partition):
        assert not partition.closed
    assert partition.closed
