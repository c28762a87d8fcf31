"""Whole table updates in a task: what is behind the end of its batch is read from Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest

from tailrace.local import LocalKafka
from tailrace_common.kafka import PartitionReader
from tailrace_common.topics import SchemaReader
from tailrace_schemas.change import Change
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import build_generation
from tailrace_schemas.tokens import partition
from tailrace_spark.batch.delivery import Delivered, Piece
from tailrace_spark.sinks.cassandra.log.rows import write_times
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.partition_writer import PartitionUpdates, UpdateReading
from tests.integration.feed import Feed
from tests.unit.spark.source.updates import TABLE, change, told, whole

STREAMS = StreamTable.of(
    [build_generation(Ring((Node("h", "dc", (-(2**62), 0, 2**62)),)), timestamp=1, seed=1)], known_until=None
)


@dataclass(frozen=True)
class Published:
    """What a partition has, and what puts its updates together."""

    updates: PartitionUpdates
    changes: list[Delivered]

    def told(self, begin: int, end: int) -> list[tuple[str, int, tuple[int, ...]]]:
        """The updates of a batch of the changes from `begin` to before `end`."""
        some = self.changes[begin:end]
        pieces = [Piece(tuple(some[:2])), Piece(tuple(some[2:]))]
        written = list(self.updates.whole(pieces, lambda: some[-1].record_id.offset + 1))
        together = [delivered for piece in written for delivered in piece.changes]
        found = []
        while together:
            source = together[0].change.source
            assert source is not None
            found.append(told(together[: source.count]))
            assert all(times for _, times in (one.others[0] for one in together[: source.count]))
            del together[: source.count]
        return found


@pytest.fixture
def feed(empty_feed: Feed) -> Feed:
    empty_feed.add(TABLE)
    return empty_feed


def published(kafka: LocalKafka, prefix: str, feed: Feed, changes: list[Change]) -> Published:
    """One transaction for each change, as an agent without transactions publishes."""
    for one in changes:
        feed.publish([one])
    config: dict[str, bool | int | float | str] = {"bootstrap.servers": kafka.bootstrap}
    schemas = SchemaReader(config, prefix)
    schemas.refresh()
    entries = dict(schemas)
    schemas.close()
    where = feed.topic(TABLE), partition(changes[0].token, feed.options.partitions)
    updates = PartitionUpdates(UpdateReading(write_times, config), where, STREAMS, entries, early=False)
    with PartitionReader(config, *where) as reader:
        decoded = [updates.decoded(record) for record in reader.read_to_end()]
    return Published(updates, [delivered for piece in decoded for delivered in piece.changes])


@pytest.mark.promise("log-tables.same-rows")
def test_each_update_comes_once_and_whole_wherever_batches_end(kafka: LocalKafka, prefix: str, feed: Feed) -> None:
    """Those of two hosts, mixed with each other."""
    first, second = whole("a", 0, 4) + whole("a", 1, 2), whole("b", 0, 3)
    mixed = [first[0], second[0], first[1], first[2], second[1], first[3], first[4], second[2], first[5]]
    topic = published(kafka, prefix, feed, mixed)
    assert len(topic.changes) == len(mixed)
    expected = {("a", 0, (0, 1, 2, 3)), ("a", 1, (0, 1)), ("b", 0, (0, 1, 2))}
    for step in range(1, len(mixed) + 1):
        ends = [*range(0, len(mixed), step), len(mixed)]
        found = [update for begin, end in pairwise(ends) for update in topic.told(begin, end)]
        assert len(found) == len(expected)
        assert set(found) == expected


def test_what_is_not_in_kafka_yet_is_left_to_the_driver(kafka: LocalKafka, prefix: str, feed: Feed) -> None:
    """Which waits for it, and writes the update without it in the end."""
    topic = published(kafka, prefix, feed, [*whole("a", 0, 1), change("a", 1, 0, 3), change("a", 1, 1, 3)])
    assert topic.told(0, 1) == [("a", 0, (0,))]
    for begin in range(2):
        with pytest.raises(HereOnlyError, match="the rest of a mutation is not in Kafka yet"):
            topic.told(begin, 2)
