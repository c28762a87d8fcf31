"""One agent's keeper step by step, what it tells, and its thread: whatever fails, it goes on, and holds nobody up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from tailrace.ops.health import Health, HealthBoard, RingState
from tailrace.topology.keeper import KeeperThread, Retention, RingKeeper, Surroundings, run_appending
from tailrace.topology.ring_watch import USUAL, Delays
from tailrace_common.kafka import Record
from tailrace_common.topics import GenerationReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.ring import Node, Ring, RingError
from tailrace_schemas.streams import Mark
from tests.support.clock import ManualClock
from tests.support.waiting import until
from tests.unit.topology.memory import NOW, MemorySource, MemoryTopic

A, B = Node("a", "dc1", (1, 5)), Node("b", "dc1", (3,))
OLD, NEW = Ring((A,)), Ring((A, B))


@dataclass
class Agent:
    """A keeper, the ring that its node shows, and the topic."""

    topic: MemoryTopic = field(default_factory=MemoryTopic)
    clock: ManualClock = field(default_factory=ManualClock)
    ring: Ring | Exception = OLD
    delays: Delays = USUAL
    retention: Retention | None = None
    uuids: Iterator[UUID] = field(default_factory=lambda: (UUID(int=n) for n in range(1, 99)))

    def __post_init__(self) -> None:
        self.board = HealthBoard(self.clock)
        self.topic.now_ms = lambda: NOW + round(self.clock.now * 1000)
        self.keeper = RingKeeper(
            Surroundings(
                host="a",
                ring=self.look,
                clock=self.clock,
                new_uuid=lambda: next(self.uuids),
                health=self.board,
                delays=self.delays,
                retention=self.retention,
            )
        )
        self.reader = self.open()

    def look(self) -> Ring:
        if isinstance(self.ring, Exception):
            raise self.ring
        return self.ring

    def open(self) -> GenerationReader:
        """A reader that has read nothing."""
        return GenerationReader(MemorySource(self.topic), now=self.clock)

    def step(self, after: float = 0.0) -> float:
        """Seconds later, a step; how long it wants to wait."""
        self.clock.now += after
        return run_appending(self.keeper.step(self.reader), self.topic)

    def known(self) -> tuple[PublishedGeneration, ...]:
        return self.reader.published

    @property
    def health(self) -> Health:
        return self.board.now

    def state(self) -> tuple[RingState, int | None]:
        """How the ring stands, and to which generation."""
        assert self.health.ring is not None
        return self.health.ring.state, self.health.ring.generation


def test_from_the_first_generation_to_the_second() -> None:
    agent = Agent()
    assert agent.step() == 10
    assert agent.state() == (RingState.COVERED, NOW)
    agent.ring = NEW
    assert agent.step(5) == 7.5
    assert agent.state() == (RingState.SETTLING, NOW)
    assert agent.health.ring is not None
    assert (agent.health.ring.waits_for, agent.health.ring.nodes) == ("30 s more without a change of the ring", 2)
    assert agent.step(29) == pytest.approx(1)
    agent.step(1)
    second = NOW + 35_000 + 65_000
    assert agent.state() == (RingState.COVERED, second)
    first, latest = agent.reader.published
    assert (latest.predecessor, latest.timestamp, latest.unpack().ring) == (first.timestamp, second, NEW)
    assert dict(agent.health.counts) == {"proposals": 2, "proposals_won": 2}
    assert agent.health.degraded == {}


@pytest.mark.parametrize("error", [ServiceError("no connection: is the node up?"), RingError("token 1 twice")])
def test_a_ring_that_cannot_be_read_is_told_once_and_waited_for(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent()
    agent.step()
    agent.ring = error
    assert agent.step(1) == agent.step(1) == 10
    assert agent.state() == (RingState.UNKNOWN, NOW)
    assert str(error) in agent.health.degraded["ring"]
    assert caplog.text.count(str(error)) == 1
    assert agent.health.counts["ring_failures"] == 2
    agent.ring = NEW
    agent.step(40)
    assert agent.health.degraded == {}
    assert agent.state() == (RingState.SETTLING, NOW)


@pytest.mark.promise("ring.in-time")
def test_a_commit_record_that_comes_too_late_is_ignored_and_followed_by_another_proposal() -> None:
    """The process stood still between description and commit record."""
    agent = Agent()
    agent.step()
    agent.ring = NEW
    agent.step(1)
    before, stalls = len(agent.topic.records), [60.001, 60.0]

    def stall(count: int) -> None:
        if (count - before) % 2:
            agent.clock.now += stalls.pop(0)

    agent.topic.before = stall
    assert 0 < agent.step(30) < 1
    assert agent.state() == (RingState.DUE, NOW)
    assert agent.health.counts["proposals_late"] == 1
    agent.step(0.2)
    assert agent.state() == (RingState.SETTLING, NOW), "nobody looked for a minute"
    agent.step(15)
    agent.step(15)
    assert agent.state() == (RingState.COVERED, NOW + 31_000 + 60_001 + 200 + 30_000 + 65_000)
    assert stalls == []
    assert len(agent.reader.published) == 2


def test_without_a_ring_delay_there_is_room_for_the_commit_record_and_more_each_time() -> None:
    agent = Agent(delays=Delays(0, 10))
    agent.step()
    agent.ring = NEW
    stalls = [1.5, 2.5, 3.5]
    before = len(agent.topic.records)

    def stall(count: int) -> None:
        if (count - before) % 2:
            agent.clock.now += stalls.pop(0)

    agent.topic.before = stall
    waits = [agent.step(), agent.step()]
    assert agent.state()[0] is RingState.DUE
    agent.step()
    assert agent.state()[0] is RingState.COVERED
    assert waits == pytest.approx([0.2, 0.4])
    assert agent.reader.published[-1].timestamp == NOW + 4_000 + 4_000 + 5_000


def test_another_s_generation_is_as_good() -> None:
    """Two agents at the same moment: between any two records of one stand those of the other."""
    for at in range(2):
        one = Agent()
        one.step()
        one.ring = NEW
        one.step(1)
        other = Agent(topic=one.topic, clock=one.clock, ring=NEW, uuids=iter([UUID(int=99)]))
        other.step()
        one.step(15)
        other.step()
        one.clock.now += 15
        steps = one.keeper.step(one.reader)
        record = next(steps)
        for _ in range(at):
            record = steps.send(one.topic.append(*record))
        other.step()
        with suppress(StopIteration):
            while True:
                record = steps.send(one.topic.append(*record))
        assert len(one.open().refresh()) == 2
        assert one.state() == other.state()
        assert (one.state()[0], one.reader.published[-1].uuid) == (RingState.COVERED, UUID(int=99))
        assert one.health.counts["proposals_lost"] == 1


def test_nodes_that_disagree_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    one = Agent()
    other = Agent(topic=one.topic, clock=one.clock, ring=NEW, uuids=iter(UUID(int=n) for n in range(100, 200)))
    told = []
    for _ in range(360):
        one.step(10)
        other.step()
        told.append("do all nodes agree?" in one.health.degraded.get("ring", ""))
    assert True in told
    assert 6 <= len(one.reader.published) <= 12, "in an hour"
    assert caplog.text.count("do all nodes agree?") <= 8


@pytest.mark.promise("ring.retention")
def test_a_generation_of_which_no_change_is_kept_goes_for_every_reader() -> None:
    """One agent of two announces it; the other, whose clock is a day ahead, was not heeded."""
    clock = ManualClock()

    def agent_with(ahead_ms: int, topic: MemoryTopic) -> Agent:
        retention = Retention(1_000_000, tuple, lambda: NOW + ahead_ms + round(clock.now * 1000))
        return Agent(topic=topic, clock=clock, retention=retention)

    hasty = agent_with(86_400_000, MemoryTopic())
    one = agent_with(0, hasty.topic)
    hasty.step()
    one.ring = hasty.ring = NEW
    for _ in range(3):
        hasty.step(15)
    first, second = hasty.reader.published
    records = len(hasty.topic.records)

    hasty.step(100)
    hasty.step(100)
    one.step()
    assert len(hasty.topic.records) == records + 1, "too early"
    assert one.known() == (first, second)
    clock.now = (second.timestamp - NOW) / 1000 + 999.999
    one.step()
    assert one.known() == (first, second)
    one.step(0.001)
    assert one.known() == one.open().refresh() == (second,)
    assert one.state() == (RingState.COVERED, second.timestamp)
    assert len(hasty.topic.records) == records + 2
    hasty.step(5000)
    assert hasty.known() == (second,)
    assert len(hasty.topic.records) == records + 2
    assert one.reader.operating(first.timestamp * 1000) == (second, Mark.BEFORE_FIRST)


@pytest.mark.promise("ring.retention")
@pytest.mark.parametrize("kept", [[3_000_000, 5], [None, 5], ServiceError("no right to ask")], ids=str)
def test_no_generation_goes_while_a_topic_keeps_changes_of_its_time(
    kept: list[int | None] | ServiceError, caplog: pytest.LogCaptureFixture
) -> None:
    clock, asked = ManualClock(), list[float]()

    def topics_ms() -> list[int | None]:
        asked.append(clock.now)
        if isinstance(kept, ServiceError):
            raise kept
        return kept

    one = Agent(clock=clock, retention=Retention(1_000_000, topics_ms, lambda: NOW + round(clock.now * 1000)))
    one.step()
    one.ring = NEW
    for _ in range(6):
        one.step(15)
    first, second = one.known()
    clock.now = (second.timestamp - NOW) / 1000 + 2_000
    one.step()
    one.step(1)
    assert (one.known(), len(asked)) == ((first, second), 1), "asked once an hour"
    assert ("no right to ask" in caplog.text) == isinstance(kept, ServiceError)
    one.step(3_600)
    assert len(asked) == 2
    assert one.known() == one.open().refresh() == ((second,) if kept == [3_000_000, 5] else (first, second))


# The thread


class Loud(MemorySource):
    """A source that fails as often as it is told to."""

    def __init__(self, topic: MemoryTopic, errors: list[Exception]) -> None:
        super().__init__(topic)
        self.errors = errors
        self.closed = 0

    def read_to_end(self) -> Iterator[Record]:
        if self.errors:
            raise self.errors.pop(0)
        return super().read_to_end()

    def close(self) -> None:
        self.closed += 1


@pytest.mark.promise("ring.changes-go-on")
@pytest.mark.parametrize("error", [ServiceError("Kafka is away"), RuntimeError("a defect")])
def test_the_thread_tells_what_fails_opens_the_topic_anew_and_goes_on(error: Exception) -> None:
    agent, opened = Agent(), list[Loud]()

    def open_reader() -> GenerationReader:
        opened.append(Loud(agent.topic, [] if opened else [error]))
        return GenerationReader(opened[-1])

    with KeeperThread(agent.keeper, open_reader, agent.topic, agent.board) as thread:
        until(lambda: "generations" in agent.health.degraded, "trouble with the generations")
        assert str(error) in agent.health.degraded["generations"]
        thread.stir()
        until(lambda: agent.health.ring is not None and agent.state() == (RingState.COVERED, NOW), "a generation")
        until(lambda: agent.health.degraded == {}, "the end of the trouble")
    assert agent.health.counts["generation_failures"] == 1
    assert [source.closed for source in opened] == [1, 1]


def test_a_topic_that_cannot_be_opened_is_told_too() -> None:
    agent, errors = Agent(), [ServiceError("kafka.ssl.ca: no such file")]

    def open_reader() -> GenerationReader:
        if errors:
            raise errors.pop()
        return agent.open()

    with KeeperThread(agent.keeper, open_reader, agent.topic, agent.board) as thread:
        until(lambda: "no such file" in agent.health.degraded.get("generations", ""), "trouble with the file")
        thread.stir(False)
        until(lambda: agent.health.ring is not None, "the ring")


def test_an_append_that_fails_is_a_proposal_that_dies() -> None:
    agent, failed = Agent(), list[int]()

    def fail(count: int) -> None:
        if count == 1 and not failed:
            failed.append(count)
            raise ServiceError("Kafka went away")

    agent.topic.before = fail
    with KeeperThread(agent.keeper, agent.open, agent.topic, agent.board) as thread:
        until(lambda: "Kafka went away" in agent.health.degraded.get("generations", ""), "trouble with Kafka")
        thread.stir()
        until(lambda: agent.health.ring is not None and agent.state() == (RingState.COVERED, NOW), "a generation")
    (first,) = agent.open().refresh()
    assert first.offset == 2


def test_an_event_ends_the_wait_and_a_changed_ring_begins_anew() -> None:
    agent = Agent()

    def waits_for(words: str) -> bool:
        return agent.health.ring is not None and words in agent.health.ring.waits_for

    with KeeperThread(agent.keeper, agent.open, agent.topic, agent.board) as thread:
        until(lambda: waits_for("nothing"), "a ring that waits for nothing")
        agent.ring = NEW
        thread.stir(False)
        until(lambda: waits_for("30 s"), "30 s to wait")
        agent.clock.now += 20
        thread.stir(False)
        until(lambda: waits_for("10 s"), "10 s to wait")
        thread.stir()
        until(lambda: waits_for("30 s"), "30 s to wait")


@pytest.mark.promise("ring.changes-go-on")
def test_it_ends_while_kafka_does_not_answer() -> None:
    """A reading that takes for ever is left behind."""
    agent, never = Agent(), threading.Event()

    class Stuck(MemorySource):
        def read_to_end(self) -> Iterator[Record]:
            never.wait(60)
            return iter(())

    thread = KeeperThread(agent.keeper, lambda: GenerationReader(Stuck(agent.topic)), agent.topic, agent.board)
    thread.patience = 0.01
    thread.close()
    assert not never.is_set()
    never.set()
    thread.patience = 60.0
    thread.close()
