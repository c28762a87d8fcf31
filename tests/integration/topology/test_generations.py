"""Generations on a real Kafka: many proposers and one winner, and time as the broker says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import uuid4

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ forgets the first
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from tailrace.local import LocalKafka
from tailrace.ops.health import HealthBoard
from tailrace.publish.kafka import KafkaLog, KafkaTopics
from tailrace.topology.keeper import Retention, RingKeeper, Surroundings, announcing, propose, run_appending
from tailrace_common.settings import TopicSettings
from tailrace_common.topics import GenerationReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generation_records import PublishedGeneration, commit_at, encode_expired, encode_proposal
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import LEEWAY_MS, Mark
from tailrace_schemas.topics import Internal, internal_topic
from tests.proposing import publish, take_first_step
from tests.support.clock import ManualClock
from tests.support.waiting import until

PROPOSERS = 6
RING = Ring(tuple(Node(f"host-{n}", "dc1", tuple(range(n - 10**6, 10**6, 7_919))) for n in range(3)))
GROWN = Ring((*RING.nodes, Node("host-3", "dc2", (2**60,))))


class Cluster:
    """The topic of one cluster's generations, and what agents do with it."""

    def __init__(self, bootstrap: str, prefix: str, opened: ExitStack) -> None:
        self.config = {"bootstrap.servers": bootstrap}
        self.prefix = prefix
        self.topic = internal_topic(prefix, Internal.GENERATIONS)
        self._opened = opened
        self.topics = KafkaTopics(self.config, TopicSettings(prefix=prefix))
        self.topics.ensure_internal([Internal.GENERATIONS])
        until(lambda: self._problems() == [], "no problems with the generations", state=self._problems)

    def _problems(self) -> list[str]:
        """Of the topic, which a busy broker does not know at once when it has made it."""
        try:
            return self.topics.problems({self.topic: 1})
        except ServiceError as error:
            return [str(error)]

    def keep(self, topic: str, milliseconds: int) -> None:
        """From now on the topic keeps its records so long."""
        entry = ConfigEntry("retention.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
        asked = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin = AdminClient({**self.config})
        for future in admin.incremental_alter_configs([asked]).values():
            future.result(60)
        until(lambda: self.topics.retentions() == [milliseconds], "the topic's retention", state=self.topics.retentions)

    def reader(self) -> GenerationReader:
        """A reader that nobody has used yet."""
        return self._opened.enter_context(GenerationReader.open(self.config, self.topic))

    def log(self) -> KafkaLog:
        """A producer of one's own."""
        return KafkaLog(self.config, self.topic)

    def start(self) -> PublishedGeneration:
        """What an agent does when it starts."""
        return self.started(self.reader())

    def started(self, reader: GenerationReader) -> PublishedGeneration:
        """The same, with a reader of one's own."""
        first = take_first_step(RING, self.log(), reader, uuid4)
        assert first is not None
        return first


@pytest.fixture
def cluster(kafka: LocalKafka, prefix: str) -> Iterator[Cluster]:
    """A cluster without a generation."""
    with ExitStack() as opened:
        yield Cluster(kafka.bootstrap, prefix, opened)


@pytest.mark.spine
def test_proposers_that_start_together_make_one_first_generation(cluster: Cluster) -> None:
    together = threading.Barrier(PROPOSERS)

    class AllReadFirst(GenerationReader):
        """Goes on from its first reading only when all the others have theirs: none of them saw a generation."""

        waited = False

        def refresh(self) -> tuple[PublishedGeneration, ...]:
            published = super().refresh()
            if not self.waited:
                self.waited = True
                together.wait(60)
            return published

    def start(_: int) -> PublishedGeneration:
        with AllReadFirst.open(cluster.config, cluster.topic) as reader:
            return cluster.started(reader)

    with ThreadPoolExecutor(PROPOSERS) as agents:
        found = list(agents.map(start, range(PROPOSERS)))
    late = cluster.reader()
    assert late.refresh() == (found[0],)
    assert set(found) == {found[0]}
    assert found[0].unpack().ring == RING
    assert cluster.start() == found[0]


@pytest.mark.promise("ring.in-time")
def test_the_brokers_time_decides_whether_a_proposal_came_early_enough(cluster: Cluster) -> None:
    first, reader, log = cluster.start(), cluster.reader(), cluster.log()
    *description, commit = encode_proposal(propose(GROWN, first.timestamp, uuid=uuid4()))
    appended = [log.append(*record) for record in description]
    log.append(*commit_at(commit, appended[-1] + LEEWAY_MS - 1))
    assert reader.refresh() == (first,)
    second = publish(propose(GROWN, first.timestamp, uuid=uuid4()), log, reader)
    assert second is not None
    assert second.predecessor == first.timestamp
    assert second.timestamp - LEEWAY_MS >= second.appended >= appended[-1] >= first.timestamp
    assert 0 <= second.appended - (second.timestamp - 65_000) < 10_000
    assert reader.operating(first.timestamp * 1000) == (first, None)
    assert reader.operating(first.timestamp * 1000 - 1) == (first, Mark.BEFORE_FIRST)
    assert reader.operating(second.timestamp * 1000) == (second, Mark.AHEAD)


@pytest.mark.promise("ring.retention")
def test_generations_of_which_no_change_is_kept_go_for_every_reader(cluster: Cluster) -> None:
    first, log, before = cluster.start(), cluster.log(), cluster.reader()
    timestamp = run_appending(announcing(propose(GROWN, first.timestamp, uuid=uuid4()), 0), log)
    log.append(*encode_expired(timestamp, 1))
    known = [generation.timestamp for generation in before.refresh()]
    assert known == [first.timestamp, timestamp], "the first went too early"

    clock = ManualClock()
    parts = Surroundings(
        host="a",
        ring=lambda: GROWN,
        clock=clock,
        new_uuid=uuid4,
        health=HealthBoard(clock),
        retention=Retention(1, cluster.topics.retentions, lambda: round(time.time() * 1000)),
    )
    keeper, reader = RingKeeper(parts), cluster.reader()
    run_appending(keeper.step(reader), log)
    assert len(reader.published) == 2, "the second does not operate yet"
    until(lambda: time.time() * 1000 > timestamp + 2, "a later time than the generation's")
    table = f"{cluster.prefix}.ks.t"
    cluster.topics.ensure_table(table)
    run_appending(keeper.step(reader), log)
    assert len(reader.published) == 2, "the table's topic keeps changes of the first"
    cluster.keep(table, 1)
    clock.now += 3600
    run_appending(keeper.step(reader), log)
    for left in (reader.published, before.refresh(), cluster.reader().refresh()):
        assert [each.timestamp for each in left] == [timestamp]
    [second] = left
    assert before.operating(first.timestamp * 1000) == (second, Mark.BEFORE_FIRST)
