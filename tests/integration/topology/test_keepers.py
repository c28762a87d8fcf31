"""Several agents' keepers on a real Kafka, each with a ring of its own to look at: one generation for each ring."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from uuid import uuid4

import pytest

from tailrace.local import LocalKafka
from tailrace.ops.health import HealthBoard, RingHealth, RingState
from tailrace.publish.kafka import KafkaLog, KafkaTopics
from tailrace.topology.keeper import KeeperThread, RingKeeper, Surroundings
from tailrace.topology.ring_watch import Delays
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.settings import TopicSettings
from tailrace_common.topics import GenerationReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import LEEWAY_MS
from tailrace_schemas.topics import Internal, internal_topic
from tests.support.waiting import until

AGENTS = 3
DELAYS = Delays(0.5, 0.2)
NODES = tuple(Node(f"host-{n}", "dc1", tuple(range(n - 10**6, 10**6, 7_919))) for n in range(AGENTS + 1))
FIRST = Ring(NODES[:3])
JOINING = Ring((*NODES[:3], Node("host-3", "dc1", (), normal=False)))
GROWN = Ring(NODES)
REPLACED = Ring((*NODES[:3], Node("host-9", "dc1", NODES[3].tokens)))


class DyingLog:
    """A producer whose process dies before the nth record: that one never comes, and none after it."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self.left: int | None = None

    def append(self, key: bytes, value: bytes) -> int:
        """Append, as long as it lives."""
        if self.left is not None:
            if self.left == 0:
                raise ServiceError("dead")
            self.left -= 1
        return self._log.append(key, value)


@dataclass
class Agent:
    """One agent's keeper, and what its node shows."""

    shown: list[Ring]
    log: DyingLog
    board: HealthBoard
    thread: KeeperThread

    def sees(self, ring: Ring) -> None:
        """Its node shows another ring, and an event says so."""
        self.shown[0] = ring
        self.thread.stir()

    @property
    def ring(self) -> RingHealth:
        """What it tells."""
        until(lambda: self.board.now.ring is not None, "the agent's ring", state=lambda: self.board.now)
        assert self.board.now.ring is not None
        return self.board.now.ring


class Cluster:
    """A topic, and agents around it."""

    def __init__(self, bootstrap: str, prefix: str, opened: ExitStack) -> None:
        self._config: dict[str, Scalar] = {"bootstrap.servers": bootstrap}
        self._topic = internal_topic(prefix, Internal.GENERATIONS)
        KafkaTopics(self._config, TopicSettings(prefix=prefix)).ensure_internal([Internal.GENERATIONS])
        self.agents = [self._start(n, opened) for n in range(AGENTS)]

    def _start(self, number: int, opened: ExitStack) -> Agent:
        board, log, shown = HealthBoard(time.monotonic), DyingLog(KafkaLog(self._config, self._topic)), [FIRST]
        keeper = RingKeeper(
            Surroundings(
                host=f"host-{number}",
                ring=lambda: shown[0],
                clock=time.monotonic,
                new_uuid=uuid4,
                health=board,
                delays=DELAYS,
            )
        )
        return Agent(shown, log, board, opened.enter_context(KeeperThread(keeper, self.reader, log, board)))

    def reader(self) -> GenerationReader:
        """A reader that has read nothing."""
        return GenerationReader.open(self._config, self._topic)

    def published(self) -> tuple[PublishedGeneration, ...]:
        """What somebody finds who reads the topic now."""
        with self.reader() as reader:
            return reader.refresh()

    def until_covered(self, count: int, agents: list[Agent]) -> tuple[PublishedGeneration, ...]:
        """Wait until those agents say that the latest of so many generations is their ring's."""
        until(
            lambda: len(self.published()) >= count, f"{count} generations", state=lambda: [a.ring for a in self.agents]
        )
        published = self.published()
        assert len(published) == count
        latest = published[-1].timestamp

        def covered() -> bool:
            return all((a.ring.state, a.ring.generation) == (RingState.COVERED, latest) for a in agents)

        until(covered, "the latest generation at all agents", state=lambda: [a.ring for a in agents])
        return published


@pytest.fixture
def cluster(kafka: LocalKafka, prefix: str) -> Iterator[Cluster]:
    """Three agents that start at once."""
    with ExitStack() as opened:
        yield Cluster(kafka.bootstrap, prefix, opened)


@pytest.mark.promise("ring.one-generation")
def test_each_ring_has_one_generation_whoever_notices_and_whoever_dies(cluster: Cluster) -> None:
    one, two, three = cluster.agents
    cluster.until_covered(1, cluster.agents)

    # A node joins. Not all hear of it at once; and the agent whose turn comes first dies before its commit record.
    one.log.left = 1
    for agent in (one, two, three):
        agent.sees(JOINING)
    until(lambda: {agent.ring.state for agent in cluster.agents} == {RingState.CHANGING}, "a ring that changes")
    assert one.ring.waits_for == "host-3 to finish joining, leaving or moving"
    assert len(cluster.published()) == 1
    for agent in (one, two, three):
        agent.sees(GROWN)
    cluster.until_covered(2, [two, three])

    # Its process starts again, as the next change comes: a node is replaced by another with the same tokens.
    one.log.left = None
    for agent in (three, two, one):
        agent.sees(REPLACED)
    published = cluster.until_covered(3, cluster.agents)
    assert [generation.unpack().ring for generation in published] == [FIRST, GROWN, REPLACED]
    streams = [generation.unpack().generation.streams() for generation in published]
    assert not streams[1] & streams[2]
    for before, after in pairwise(published):
        assert after.predecessor == before.timestamp
        assert after.appended + LEEWAY_MS <= after.timestamp < after.appended + LEEWAY_MS + 1_500
    assert sum(agent.board.now.counts.get("proposals_won", 0) for agent in cluster.agents) == 3
