"""What is logged, and told, of services that fail for long, and of a Kafka that is slow."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tailrace.agent.outage import Outage
from tailrace.agent.slowness import Slowness
from tailrace.ops.health import HealthBoard
from tailrace_common.kafka import Pace
from tailrace_schemas.errors import ServiceError
from tests.support.clock import ManualClock
from tests.support.kafka import Faults
from tests.unit.agent.world import NOTES, ORDERS, World, entries
from tests.unit.mutations import deletion


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
