"""Many agents around one topic, record by record: clocks disagree, news is late or lost, any append may be the last."""

from __future__ import annotations

import heapq
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from uuid import UUID

from tailrace.ops.health import HealthBoard
from tailrace.topology.keeper import RingKeeper, Surroundings
from tailrace.topology.ring_watch import Delays
from tailrace_common.topics import GenerationReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.ring import Node, Ring
from tests.unit.topology.memory import NOW, MemorySource, MemoryTopic

RING_DELAY = 30.0
DELAYS = Delays(RING_DELAY, 10.0)


@dataclass(frozen=True, slots=True)
class Change:
    """From `at` (seconds) on the ring is this one; agents learn of it `lags` seconds later, each its own."""

    at: float
    ring: Ring
    lags: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """How badly things go until `calm` seconds after each change: chances of each append, look or reading."""

    calm: float = 0.0

    death: float = 0.0
    blind: float = 0.0
    deaf: float = 0.0
    stall: float = 0.0
    stall_seconds: float = 0.0


@dataclass
class Agent:
    """One agent: its keeper is new after each death; its clocks began somewhere."""

    number: int
    world: World
    skew: float

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new process."""
        world = self.world
        # Any ring has a place for it: agents of nodes that are not members yet, or any more, run too.
        parts = Surroundings(
            host=f"host-{self.number}",
            ring=self._look,
            clock=lambda: world.now + self.skew,
            new_uuid=lambda: UUID(int=world.random.getrandbits(128)),
            health=HealthBoard(lambda: 0.0),
            delays=DELAYS,
        )
        self.keeper = RingKeeper(parts)
        self.reader = GenerationReader(MemorySource(world.topic), now=lambda: world.now + self.skew)
        self.step: Generator[tuple[bytes, bytes], int, float] | None = None
        self.pending: tuple[bytes, bytes] | None = None

    def _look(self) -> Ring:
        world = self.world
        if world.random.random() < world.troubled.blind:
            raise ServiceError("the node does not answer")
        return [change.ring for change in world.changes if change.at + change.lags[self.number] <= world.now][-1]


@dataclass
class World:
    """Agents, the topic and true time (seconds), which only the topic's broker has, more or less."""

    changes: list[Change]
    agents: int
    random: random.Random
    trouble: Trouble
    broker_jump_ms: int = 0
    now: float = 0.0
    topic: MemoryTopic = field(default_factory=MemoryTopic)

    def run(self, until: float) -> None:
        """Everybody steps when due; appends of all agents interleave in any order."""
        self.topic.now_ms = self._broker_ms
        agents = [Agent(n, self, self.random.uniform(-(10**6), 10**6)) for n in range(self.agents)]
        due = [(self.random.uniform(0, 10), n) for n in range(self.agents)]
        heapq.heapify(due)
        while due[0][0] < until:
            at, n = heapq.heappop(due)
            self.now = max(self.now, at)
            heapq.heappush(due, (self.now + self._advance(agents[n]), n))

    @property
    def troubled(self) -> Trouble:
        """How badly things go now."""
        last = max(change.at for change in self.changes if change.at <= self.now)
        return self.trouble if self.now < last + self.trouble.calm else Trouble()

    def _broker_ms(self) -> int:
        return NOW + round(self.now * 1000) + self.random.randint(0, self.broker_jump_ms)

    def _advance(self, agent: Agent) -> float:
        """One look, or one append; seconds until the next."""
        trouble, chance = self.troubled, self.random.random
        if agent.pending is not None and chance() < trouble.death:
            dies_before = chance() < 0.5
            if not dies_before:
                self.topic.append(*agent.pending)
            agent.begin()
            return self.random.uniform(0, 60)
        try:
            if agent.step is None or agent.pending is None:
                if chance() < trouble.deaf:
                    raise ServiceError("Kafka does not answer")
                if chance() < 0.05:
                    agent.keeper.stir()
                agent.step = agent.keeper.step(agent.reader)
                agent.pending = next(agent.step)
            else:
                agent.pending = agent.step.send(self.topic.append(*agent.pending))
        except StopIteration as done:
            agent.step = agent.pending = None
            seconds: float = done.value
            return seconds + self.random.uniform(0.001, 0.2)
        except ServiceError:
            agent.step = agent.pending = None
            return self.random.uniform(0, 5)
        if chance() < trouble.stall:
            return self.random.uniform(0, trouble.stall_seconds)
        return self.random.uniform(0.001, 0.05)

    def published(self) -> tuple[PublishedGeneration, ...]:
        """What somebody finds who reads the topic for the first time."""
        return GenerationReader(MemorySource(self.topic), now=lambda: 0.0).refresh()


def ring_at_random(chosen: random.Random, members: int, tokens: int) -> Ring:
    """Some of the hosts that agents may have, each with its tokens."""
    hosts = chosen.sample(range(members + 2), members)
    drawn = chosen.sample(range(2**62), members * tokens)
    return Ring(
        tuple(Node(f"host-{h}", "dc1", tuple(drawn[i * tokens : (i + 1) * tokens])) for i, h in enumerate(hosts))
    )
