"""What is logged, and told, of services that fail for long, and of a Kafka that is slow.

Rounds of the run loop that work and change nothing: told within seconds, once, and spaced; whatever repeats.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import pytest

from tailrace.agent.limits import Limits
from tailrace.agent.stalls import STANDSTILL, Outage, Slowness, Standstill
from tailrace.errors import RenewalError
from tailrace.ops.health import HealthBoard
from tailrace.state import Loss, Missing
from tailrace_common.kafka import Pace
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tests.support.clock import ManualClock
from tests.support.kafka import Faults
from tests.unit.agent.world import NOTES, ORDERS, World, entries, world_with
from tests.unit.mutations import deletion

ROUNDS = 8


def test_a_service_that_is_away_is_logged_every_minute(caplog: pytest.LogCaptureFixture) -> None:
    """With how long, and how much waits; not at each attempt."""
    clock = ManualClock()
    health = HealthBoard(clock)
    health.gauge(waiting_segments=7, waiting_bytes=7 << 20)
    outage = Outage(health, clock)
    for _ in range(14):
        outage.failed(ServiceError("Kafka: nobody answers"))
        outage.wait(10.0, clock.wait)
    assert [record.message for record in caplog.records] == [
        "nothing is published, and the agent tries again: Kafka: nobody answers",
        "nothing was published for 60 s; 7 segments wait (7 MiB): Kafka: nobody answers",
        "nothing was published for 2 min; 7 segments wait (7 MiB): Kafka: nobody answers",
    ]
    assert health.now.degraded == {"service": "Kafka: nobody answers"}
    caplog.set_level(logging.INFO)
    outage.over()
    assert caplog.records[-1].message == "publishing again, after 2 min; 7 segments wait (7 MiB)"
    assert health.now.degraded == {}


class Bell:
    """An alarm that rings when the test says so."""

    def __init__(self) -> None:
        self.set_for: list[float] = []
        self.cancelled = 0
        self.ring: Callable[[], None] = lambda: None

    def __call__(self, seconds: float, ring: Callable[[], None]) -> Callable[[], None]:
        self.set_for.append(seconds)
        self.ring = ring
        return self._cancel

    def _cancel(self) -> None:
        self.cancelled += 1


def test_a_service_that_says_nothing_is_named_before_the_attempt_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """A driver that waits for an answer takes most of a minute. Later attempts have their own errors."""
    bell, clock = Bell(), ManualClock()
    health = HealthBoard(clock)
    outage = Outage(health, clock, bell)
    with outage.attempting("Cassandra at c:9042 (cluster.contact_points, cluster.port)"):
        bell.ring()
        assert [record.message for record in caplog.records] == [
            "Cassandra at c:9042 (cluster.contact_points, cluster.port) has not answered for 5 s. Nothing is published "
            "until it does; the agent goes on trying"
        ]
        assert "has not answered" in health.now.degraded["service"]
    assert (bell.set_for, bell.cancelled) == ([5.0], 1)
    outage.failed(ServiceError("timed out"))
    with outage.attempting("Cassandra"):
        assert bell.set_for == [5.0]
    outage.over()
    assert health.now.degraded == {}


def test_a_long_wait_is_interrupted_to_say_it(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    outage = Outage(HealthBoard(clock), clock)
    outage.failed(ServiceError("away"))
    outage.wait(90.0, clock.wait)
    assert [record.message for record in caplog.records] == [
        "nothing is published, and the agent tries again: away",
        "nothing was published for 60 s: away",
    ]
    assert clock.now == 90.0


def test_a_slow_kafka_is_told_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """In health at once, in the log once a minute, until it is over."""
    clock = ManualClock()
    health, pace = HealthBoard(clock), Pace(10, 600, clock)
    slowness = Slowness(pace, health, clock)
    slowness.tell()
    assert (health.now.degraded, health.now.gauges["kafka_bytes_per_second"]) == ({}, 0)
    for _ in range(12):
        clock.wait(10.0)
        pace.timed_out(8 << 20, 3_200_000, 8.0)
        slowness.tell()
    words = health.now.degraded["slow"]
    assert "it takes about 400,000 bytes a second" in words
    assert "agent.transaction_timeout_seconds (10)" in words
    assert "agent.longest_transaction_seconds (600)" in words
    assert health.now.gauges["kafka_bytes_per_second"] == 400_000
    assert len([record for record in caplog.records if "Kafka is slow" in record.message]) == 2
    pace.throttle(2.5)
    clock.wait(2.0)
    slowness.tell()
    assert "producer_byte_rate" in health.now.degraded["slow"]
    clock.wait(100.0)
    slowness.tell()
    assert health.now.degraded == {}


def test_an_agent_whose_transactions_fail_is_not_ready() -> None:
    """It connects each time, and that proves nothing; ready it is when a transaction came through."""
    world, readiness = World(), list[bool]()
    world.log.append(1, entries("a"), final=False)

    class Failing(Faults):
        """The first three commits fail."""

        def at(self, step: str) -> None:
            self.seen[step] += 1
            if step == "send" and self.seen["commit"]:
                readiness.append(world.health.now.ready)
            if step == "commit" and self.seen[step] <= 3:
                raise ServiceError("Kafka: timed out")

    world.live(Failing(), idle_waits=12)
    assert readiness == [False, False, False]
    assert world.keys() == ["a"]
    assert world.health.now.ready


def test_a_mutation_that_needs_more_time_gets_it_and_the_next_ones_do_not() -> None:
    """By new sessions; nothing is lost or twice."""
    world = World()
    world.pace = Pace(10, 600, world.clock, 10_000.0)
    world.log.append(1, entries("ab"), final=False)
    asked = list[int]()

    class Counting(Faults):
        """How long transactions may last in each session."""

        def at(self, step: str) -> None:
            self.seen[step] += 1
            if step == "start":
                assert world.pace is not None
                asked.append(world.pace.seconds)

    world.log.append(1, entries("nn", NOTES), final=False)
    world.log.append(1, [deletion(ORDERS, b"x" * 60_000), deletion(ORDERS, b"y" * 200)], final=False)
    world.live(Counting(), idle_waits=12)
    assert asked == [10, 24, 10]
    keys = world.keys()
    assert [key[0] for key in keys] == ["a", "b", "x", "y"]


class Rounds:
    """Rounds that take a moment each."""

    def __init__(self, seconds: float = 0.005) -> None:
        self.clock = ManualClock()
        self.health = HealthBoard(self.clock)
        self.standstill = Standstill(self.health, self.clock, Limits(retry_seconds=1, retry_seconds_most=8))
        self._seconds = seconds

    def judge(self, state: object, *, rested: bool = False) -> float:
        """One more; how long to wait."""
        self.clock.wait(self._seconds)
        return self.standstill.judge(state, rested=rested)

    def stands(self) -> bool:
        """Whether health says so."""
        return STANDSTILL in self.health.now.degraded


def said(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    return Counter(record.levelname for record in caplog.records)


def test_rounds_that_change_nothing_are_told_once_and_spaced(caplog: pytest.LogCaptureFixture) -> None:
    rounds = Rounds()
    caplog.set_level(logging.INFO, "tailrace.agent")
    assert rounds.judge("a") == 0.0
    assert [rounds.judge("a") for _ in range(ROUNDS - 1)] == [0.0] * (ROUNDS - 1)
    assert not rounds.stands()
    assert [rounds.judge("a") for _ in range(6)] == [1, 2, 4, 8, 8, 8]
    assert rounds.stands()
    assert said(caplog) == {"ERROR": 1}
    assert rounds.judge("b") == 0.0
    assert not rounds.stands()
    assert said(caplog) == {"ERROR": 1, "INFO": 1}


def test_rounds_that_get_on_or_rest_are_not_told() -> None:
    """Neither are some that changed nothing, seldom or with others in between."""
    rounds = Rounds()
    assert not any(rounds.judge(number) for number in range(100))
    assert not any(rounds.judge("a", rested=True) for _ in range(100))
    assert not any(rounds.judge(number // 3) for number in range(100))
    slow = Rounds(seconds=2.0)
    assert not any(slow.judge("a") for _ in range(100))


def test_rest_in_between_ends_it_only_where_it_lasts() -> None:
    """Files that the agent deletes wake it up, so that it waits for nothing."""
    rounds = Rounds()
    waits = [rounds.judge("a", rested=number % 2 == 1) for number in range(40)]
    assert rounds.stands()
    assert max(waits) == 8
    rounds.clock.wait(8 + 9)
    rounds.judge("a", rested=True)
    assert rounds.stands()
    rounds.clock.wait(1)
    rounds.judge("a", rested=True)
    assert not rounds.stands()


class Repeating(Faults):
    """Undoes, at a step, what the run loop did."""

    def __init__(self, step: str, undo: Callable[[], None]) -> None:
        super().__init__("read", 5000)
        self._undoes, self._undo = step, undo

    def at(self, step: str) -> None:
        """Count, and undo."""
        super().at(step)
        if step == self._undoes:
            self._undo()


def test_a_commit_that_settles_nothing_is_a_standstill(caplog: pytest.LogCaptureFixture) -> None:
    """The loop never waits by itself: it is told before anything else happens, and its rounds are spaced."""
    world = world_with(entries("a"), final=False, limits=Limits(retry_seconds=1, retry_seconds_most=8))
    loss = Loss(Missing.LOST, (5, 5), Position(1, 5, 0), Position(1, 6, 0))

    def lose_again() -> None:
        world.log.losses = (loss,)

    faults = Repeating("read", lose_again)
    world.live(faults, idle_waits=20)
    assert STANDSTILL in world.health.now.degraded
    assert faults.seen["commit"] < ROUNDS + 25
    assert sum("gets no further" in record.message for record in caplog.records) == 1


def test_a_session_that_starts_over_each_time_is_a_standstill() -> None:
    """As where each new producer is too little for the next transaction."""
    world = world_with(entries("a"), final=False, limits=Limits(retry_seconds=1, retry_seconds_most=8))

    def renew() -> None:
        raise RenewalError("transactions may last longer from now on")

    faults = Repeating("read", renew)
    world.live(faults, idle_waits=20)
    assert STANDSTILL in world.health.now.degraded
    assert faults.seen["read"] < ROUNDS + 25


def test_a_release_that_is_repeated_is_a_standstill() -> None:
    """One at each look, though the loop waits in between; and it is over once it is."""
    world = world_with(entries("a"), limits=Limits(retry_seconds_most=4))
    world.log.append(2, entries("b", NOTES), final=False)
    stood = list[float]()

    def link_again() -> None:
        if world.clock.now < 30:
            world.log.append(1, entries("a"))

    def look() -> None:
        if STANDSTILL in world.health.now.degraded:
            stood.append(world.clock.now)

    world.live(Repeating("released", link_again), idle_waits=60, on_wait=look)
    assert stood[0] < 15
    assert 30 < stood[-1] < 50
    assert STANDSTILL not in world.health.now.degraded
