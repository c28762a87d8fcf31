"""Tasks of the Kafka sink on a real Kafka: the contract of change logs, attempts beside each other, who takes over."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from tailrace.local import LocalKafka
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import FencedError
from tailrace_spark.batch.delivery import MicroBatch, Piece, Summary
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.kafka.outlet import Config, KafkaOutlet, KafkaTarget, transactions
from tailrace_spark.sinks.kafka.shares import (
    KafkaShares,
    KafkaWriter,
    SupersededError,
    WorkerKafkaOutlet,
)
from tailrace_spark.sinks.protocol import write_here
from tests.held import jar_version
from tests.integration.topics import Dying, Topics
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import (
    PLAIN,
    ChangeLogContract,
    Topic,
    changes_of,
    delivered_by,
    require_order,
)
from tests.unit.spark.sinks.in_tasks import FENCING, LogInTasks, attempt, interrupted, planned_by

LOG = Log(PLAIN)
PARTITION = ("t.shop.plain", 0)
_workers = count()


@dataclass(frozen=True)
class Worker:
    """Makes the outlet of one worker process; its producers die after so many steps each."""

    config: tuple[tuple[str, Scalar], ...]
    target: KafkaTarget
    dies_after: int | None
    number: int
    letters: MemoryLetters

    def open(self) -> WorkerKafkaOutlet:
        def dying(config: Config, target: KafkaTarget) -> Any:
            real = transactions(config, target)
            return real if self.dies_after is None else Dying(real, self.dies_after)

        return WorkerKafkaOutlet(dict(self.config), self.target, dying, letters=self.letters)


class TopicsByTasks(Topics):
    """As Topics; tasks write them, each opening's in workers of their own."""

    def open(self, dies_after: int | None = None) -> Any:
        return LogInTasks(self.sink(dies_after))

    def sink(self, dies_after: int | None = None) -> ChangeLogSink:
        worker = Worker(tuple(self.config.items()), self.target, dies_after, next(_workers), self.letters)
        outlet = KafkaOutlet(self.config, self.target, letters=self.letters)
        return ChangeLogSink(outlet, shares=KafkaShares(outlet, worker))


@pytest.mark.long
class TestKafkaByTasks(ChangeLogContract):
    sink = "kafka"

    @pytest.fixture
    def server(self) -> str:
        return f"Kafka {jar_version('kafka', 'kafka-server')}"

    @pytest.fixture
    def stores(self, kafka: LocalKafka) -> Callable[[], Topics]:
        return lambda: TopicsByTasks(kafka)


@pytest.fixture
def topics(kafka: LocalKafka) -> TopicsByTasks:
    """A sink's, that has written nothing."""
    return TopicsByTasks(kafka)


def records(begin: int, end: int) -> Piece:
    """Changes of some keys in turn, all of PARTITION, at the offsets from `begin` to before `end`."""
    topic = Topic()
    piece = topic.piece(*(LOG.update((3 * (at % 4),), (), at, w=at) for at in range(end)))
    assert {delivered.record_id.partition for delivered in piece.changes} == {0}
    return Piece(piece.changes[begin:])


def planned(sink: ChangeLogSink, number: int = 0) -> KafkaWriter:
    return planned_by(KafkaWriter, sink, MicroBatch("s", number, {PARTITION: 1 << 40}))


def once_and_in_order(topics: Topics, *pieces: Piece) -> None:
    """Readers find each change of the pieces once, each key's in their order."""
    found = topics.records()
    require_order(found)
    wanted = delivered_by(*pieces)
    assert changes_of(found, PLAIN) == wanted
    assert len(found) == len(wanted)


@pytest.mark.promise("tasks.attempts")
def test_two_attempts_at_a_partition_come_out_as_one(topics: TopicsByTasks) -> None:
    """The later one ends the transaction of the earlier; one that comes when all is written writes nothing."""
    whole = records(0, 20)
    with closing(topics.sink()) as sink:
        task = planned(sink)
        with interrupted(task, PARTITION, Piece(whole.changes[:10]), then=Piece(whole.changes[10:])) as end:
            repeated = attempt(task, PARTITION, [whole])
            assert repeated.summary == Summary(20, 20)
            with pytest.raises(SupersededError, match="another attempt has begun"):
                end()
        late = attempt(task, PARTITION, [whole])
        assert late.summary == Summary(20, 0)
    once_and_in_order(topics, whole)


@pytest.mark.promise("tasks.fence")
def test_tasks_write_no_more_after_a_newer_plan(topics: TopicsByTasks) -> None:
    first, second = records(0, 10), records(0, 20)
    with closing(topics.sink()) as sink:
        task = planned(sink)
        newer = planned(sink)
        with pytest.raises(FencedError, match="newer plan"):
            task.write(PARTITION, [first])
        newer.write(PARTITION, [second])
    once_and_in_order(topics, second)


@pytest.mark.promise("tasks.fence")
def test_the_driver_takes_over_from_tasks_that_still_write(topics: TopicsByTasks) -> None:
    """Also a driver that was started again, and knows of the tasks by the topic alone."""
    whole = records(0, 20)
    with closing(topics.sink()) as dead, closing(topics.sink()) as sink:
        task = planned(dead)
        with interrupted(task, PARTITION, Piece(whole.changes[:10]), then=Piece(whole.changes[10:])) as end:
            assert write_here(sink, [whole], FENCING) == Summary(20, 20)
            with pytest.raises(FencedError, match="newer plan"):
                end()
        with pytest.raises(FencedError):
            task.write(PARTITION, [whole])
    once_and_in_order(topics, whole)


@pytest.mark.promise("tasks.one-driver")
def test_of_two_drivers_the_one_that_planned_first_ends(topics: TopicsByTasks) -> None:
    with closing(topics.sink()) as first, closing(topics.sink()) as second:
        planned(first)
        planned(second)
        with pytest.raises(FencedError, match="another stream writes for sink copy"):
            planned(first, 1)
        planned(second, 1)
