"""Rounds of the run loop that work and change nothing: told within seconds, once, and spaced; whatever repeats."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import pytest

from tailrace.agent.parts import Limits
from tailrace.agent.standstill import CAUSE, Standstill
from tailrace.errors import RenewalError
from tailrace.ops.health import HealthBoard
from tailrace.state.loss import Loss, Missing
from tailrace_schemas.position import Position
from tests.support.clock import ManualClock
from tests.support.kafka import Faults
from tests.unit.agent.world import NOTES, World, entries

ROUNDS = 8


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
        return CAUSE in self.health.now.degraded


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
    world = World(limits=Limits(retry_seconds=1, retry_seconds_most=8))
    world.log.append(1, entries("a"), final=False)
    loss = Loss(Missing.LOST, (5, 5), Position(1, 5, 0), Position(1, 6, 0))

    def lose_again() -> None:
        world.log.losses = (loss,)

    faults = Repeating("read", lose_again)
    world.live(faults, idle_waits=20)
    assert CAUSE in world.health.now.degraded
    assert faults.seen["commit"] < ROUNDS + 25
    assert sum("gets no further" in record.message for record in caplog.records) == 1


def test_a_session_that_starts_over_each_time_is_a_standstill() -> None:
    """As where each new producer is too little for the next transaction."""
    world = World(limits=Limits(retry_seconds=1, retry_seconds_most=8))
    world.log.append(1, entries("a"), final=False)

    def renew() -> None:
        raise RenewalError("transactions may last longer from now on")

    faults = Repeating("read", renew)
    world.live(faults, idle_waits=20)
    assert CAUSE in world.health.now.degraded
    assert faults.seen["read"] < ROUNDS + 25


def test_a_release_that_is_repeated_is_a_standstill() -> None:
    """One at each look, though the loop waits in between; and it is over once it is."""
    world = World(limits=Limits(retry_seconds_most=4))
    world.log.append(1, entries("a"))
    world.log.append(2, entries("b", NOTES), final=False)
    stood = list[float]()

    def link_again() -> None:
        if world.clock.now < 30:
            world.log.append(1, entries("a"))

    def look() -> None:
        if CAUSE in world.health.now.degraded:
            stood.append(world.clock.now)

    world.live(Repeating("released", link_again), idle_waits=60, on_wait=look)
    assert stood[0] < 15
    assert 30 < stood[-1] < 50
    assert CAUSE not in world.health.now.degraded
