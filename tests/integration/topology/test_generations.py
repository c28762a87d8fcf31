"""Generations on a real Kafka: many proposers and one winner."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import uuid4

import pytest

from tailrace.local import LocalKafka
from tailrace.publish.kafka import KafkaLog, KafkaTopics
from tailrace_common.settings import TopicSettings
from tailrace_common.topics import GenerationReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.topics import Internal, internal_topic
from tests.proposing import take_first_step
from tests.support.waiting import until

PROPOSERS = 6
RING = Ring(tuple(Node(f"host-{n}", "dc1", tuple(range(n - 10**6, 10**6, 7_919))) for n in range(3)))


class Cluster:
    """The topic of one cluster's generations, and what agents do with it."""

    def __init__(self, bootstrap: str, prefix: str, opened: ExitStack) -> None:
        self.config = {"bootstrap.servers": bootstrap}
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

    def reader(self) -> GenerationReader:
        """A reader that nobody has used yet."""
        return self._opened.enter_context(GenerationReader.open(self.config, self.topic))

    def started(self, reader: GenerationReader) -> PublishedGeneration:
        """What an agent does when it starts."""
        first = take_first_step(RING, KafkaLog(self.config, self.topic), reader, uuid4)
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
    assert cluster.started(cluster.reader()) == found[0]
