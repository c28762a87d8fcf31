"""Where a stream begins: at its progress, else at its start; and what Kafka no longer has is said."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace_schemas.errors import DataLossError
from tailrace_schemas.topics import KafkaPartition, table_topic
from tailrace_server.model.subscription import INITIAL, ONLY, SNAPSHOT, Shape, Start, TableName, Topics
from tailrace_server.worker.settings import beginning, topics_pattern
from tailrace_spark.job.offsets import Offsets, starting_at
from tests.unit.server.requests import subscription

A, B, NEW = ("t", 0), ("t", 1), ("new", 0)
AGAIN = {"t": "id of t"}


class Broker:
    """Kafka with these partitions, from a first offset to an end; times are offsets."""

    def __init__(self, ranges: dict[KafkaPartition, tuple[int, int]]) -> None:
        self._ranges = ranges

    def partitions(self, pattern: str) -> list[KafkaPartition]:
        return [partition for partition in self._ranges if re.fullmatch(pattern, partition[0])]

    def earliest(self, partitions: Collection[KafkaPartition]) -> Offsets:
        return {partition: self._ranges[partition][0] for partition in partitions}

    def latest(self, partitions: Collection[KafkaPartition]) -> Offsets:
        return {partition: self._ranges[partition][1] for partition in partitions}

    def at(self, partitions: Collection[KafkaPartition], milliseconds: int) -> Offsets:
        return dict.fromkeys(partitions, milliseconds)

    def ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {topic: f"id of {topic}" for topic in topics}


BROKER = Broker({A: (5, 90), B: (0, 10), NEW: (2, 3), ("other", 0): (0, 1)})


@pytest.mark.parametrize(
    ("start", "stored", "expected"),
    [
        (Start(), {}, {A: 5, B: 0, NEW: 2}),
        (Start("latest"), {}, {A: 90, B: 10, NEW: 3}),
        (Start("time", 7), {}, {A: 7, B: 7, NEW: 7}),
        (Start("latest"), {A: 50, B: 10}, {A: 50, B: 10, NEW: 2}),
        (Start(), {A: 5, B: 0, NEW: 3, ("gone", 0): 4}, {A: 5, B: 0, NEW: 3}),
    ],
)
def test_where_it_begins(start: Start, stored: dict[KafkaPartition, int], expected: dict[KafkaPartition, int]) -> None:
    of = subscription(start=start, topics=Topics(ids={"gone": "g"}, readings={"": "r"}))
    offsets, topics = beginning(of, stored, BROKER, "t|new", stops=True)
    assert offsets == expected
    assert topics.ids.items() >= {"t": "id of t", "new": "id of new"}.items()
    assert topics.readings == {"": "r"}


@pytest.mark.promise("subscription.take-over")
def test_a_topic_that_comes_after_the_first_start_is_read_from_its_beginning() -> None:
    """Whether a worker runs when it comes or not: `latest` is of the first start."""
    of = subscription(start=Start("latest"))
    offsets, topics = beginning(of, {}, Broker({}), "t|new", stops=True)
    assert offsets == {}
    offsets, topics = beginning(replace(of, topics=topics), {}, BROKER, "t|new", stops=True)
    assert offsets == {A: 5, B: 0, NEW: 2}
    assert topics.ids == {"t": "id of t", "new": "id of new"}


@pytest.mark.parametrize(
    ("stored", "read", "words", "readings"),
    [
        (
            {A: 3},
            "id of t",
            r"topic t, partition 0: Kafka deleted its records 3 to 4 .*`tailrace reset shop.orders/w",
            {},
        ),
        ({A: 7, B: 11}, "id of t", "t, partition 0: it was read to 7, and somebody made it again", AGAIN),
        ({A: 7, B: 8}, "another", "t, partition 0: it was read to 7, and somebody made it again", AGAIN),
    ],
)
@pytest.mark.promise("subscription.losses")
def test_what_kafka_lost_is_said_or_read_past(
    stored: dict[KafkaPartition, int], read: str, words: str, readings: dict[str, str]
) -> None:
    """Of a topic that was made again all partitions are read from their beginning, as another reading."""
    of = subscription(topics=Topics(ids={"t": read, "gone": "g"}))
    with pytest.raises(DataLossError, match=words):
        beginning(of, stored, BROKER, "t", stops=True)
    offsets, topics = beginning(of, stored, BROKER, "t", stops=False)
    assert offsets == {A: 5, B: 0}
    assert topics.ids == {"t": "id of t", "gone": "g"}
    assert {topic: name.partition(".")[0] for topic, name in topics.readings.items()} == readings
    assert (topics.readings == readings) is (read == "another" or not readings)


@pytest.mark.parametrize("stored", [{A: 3}, {A: 7, B: 11}])
def test_what_reads_tables_alone_waits_for_no_log_and_passes_over_nothing(stored: dict[KafkaPartition, int]) -> None:
    """Who asks for its log later is told what that has lost."""
    of = subscription(shape=Shape(stream={SNAPSHOT: ONLY}), topics=Topics(ids={"t": "another"}, begun=True))
    assert beginning(of, stored, BROKER, "t", stops=True) == (stored, of.topics)
    with pytest.raises(DataLossError):
        beginning(replace(of, shape=Shape(stream={SNAPSHOT: INITIAL})), stored, BROKER, "t", stops=True)


def test_sparks_options_begin_there() -> None:
    options = starting_at({A: 5, B: 0, NEW: 2})
    assert json.loads(options["startingOffsets"]) == {"t": {"0": 5, "1": 0}, "new": {"0": 2}}
    assert starting_at({}) == {"startingOffsets": "earliest"}


@pytest.mark.parametrize(
    ("table", "read", "left"),
    [
        ("shop.orders", ["shop.orders"], ["shop.orders2", "shop.order", "shops.orders", "shop.Orders"]),
        ("shop.*", ["shop.orders", "shop.a_b"], ["shops.orders"]),
        ("shop.order?", ["shop.orders"], ["shop.order", "shop.orders2"]),
        ("*.*", ["shop.orders", "a.b"], []),
        ("s*p.*r*e**s", ["shop.orders", "shhop.readers"], ["shop.order", "ship.rest", "shop.users_"]),
        ("*.?*d*", ["shop.orders", "shop.ord"], ["shop.d", "shop.users"]),
    ],
)
def test_which_topics_are_read(table: str, read: list[str], left: list[str]) -> None:
    pattern = topics_pattern(subscription(table=TableName.parse("a-b.c", table)))

    def topic(name: str, taken: tuple[str, ...] = ()) -> str:
        keyspace, _, table = name.partition(".")
        return table_topic("a-b.c", keyspace, table, UUID(int=1), taken)

    for name in read:
        assert re.fullmatch(pattern, topic(name))
        assert re.fullmatch(pattern, topic(name, (topic(name),)))
    assert [name for name in left if re.fullmatch(pattern, topic(name))] == []
    assert not re.fullmatch(pattern, "axb.c.shop.orders")
    assert not re.fullmatch(pattern, "a-b.c.schemas")


def test_no_pattern_of_tables_goes_back_letter_by_letter() -> None:
    """One that does takes years for a name of this length."""
    pattern = topics_pattern(subscription(table=TableName.parse("c", f"shop.{'a*' * 60}b")))
    assert not re.fullmatch(pattern, f"c.shop.{'a' * 200}")
    assert re.fullmatch(pattern, f"c.shop.{'a' * 200}b")


CUT = [("k" * 48, "t" * 222), ("k" * 48, "t" * 218 + "_log"), ("K" * 48, "t" * 222), ("k" * 48, "u" * 222)]


@pytest.mark.parametrize(
    ("keyspace", "table", "read"),
    [
        ("k" * 48, "t" * 222, [0, 1]),
        ("k" * 48, "t" * 221 + "?", [0, 1]),
        ("k" * 48, "*_log", [0, 1, 3]),
        ("k" * 48, "*", [0, 1, 3]),
        ("?" * 48, "u*", [3]),
        ("*", "u" * 222, [3]),
        ("*", "t" * 100, []),
        ("k" * 48, "t" * 100, []),
    ],
)
def test_topics_whose_names_are_cut_are_read_too(keyspace: str, table: str, read: list[int]) -> None:
    """With those of tables that begin alike: what is published says which table each of them is of."""
    topics = [table_topic("a-b.c", *names, UUID(int=1)) for names in CUT]
    wanted = subscription(table=TableName("a-b.c", keyspace, table))
    matched = [number for number, topic in enumerate(topics) if re.fullmatch(topics_pattern(wanted), topic)]
    assert matched == read
