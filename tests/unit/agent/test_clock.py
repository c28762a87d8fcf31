"""A wall clock that jumps: nothing is other than under a right one, but the time at which a change was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle

import pytest

from tailrace_schemas.change import Change
from tests.unit.agent.world import NOTES, World, entries, world_with

NOW = 1_700_000_000_000
DAY = 86_400_000


def jumping(*days: int) -> Callable[[], int]:
    """Milliseconds by a clock that is wrong by so many days, in turn."""
    wrong: Iterator[int] = cycle(days)
    return lambda: NOW + next(wrong) * DAY


def published(milliseconds: Callable[[], int]) -> tuple[World, list[Change]]:
    """Two agents after each other on a log of two segments, under this clock, with long waits in which only the
    position moves."""
    world = world_with(entries("abcde"), milliseconds=milliseconds)
    world.log.append(2, entries("fgh"), final=False)
    world.live(idle_waits=40, on_wait=lambda: world.log.append(2, entries("x", NOTES), final=False))
    world.log.append(2, entries("ij"))
    world.live()
    return world, world.changes()


def unseen(changes: list[Change]) -> list[Change]:
    """Without the time at which they were seen."""
    return [replace(one, source=replace(one.source, seen=0)) for one in changes if one.source is not None]


@pytest.mark.slow
@pytest.mark.promise("agent.clock-jumps")
@pytest.mark.parametrize("days", [(1,), (-1,), (1, 0, -1), (-20_000, 20_000)])
def test_the_wall_clock_is_in_seen_alone(days: tuple[int, ...]) -> None:
    right, expected = published(lambda: NOW)
    world, changes = published(jumping(*days))
    assert unseen(changes) == unseen(expected)
    assert {(one.source.seen - NOW) // DAY for one in changes if one.source is not None} == set(days)
    assert world.kafka.resume == right.kafka.resume
    assert (world.kafka.commits, world.clock.waits) == (right.kafka.commits, right.clock.waits)
    assert sorted(world.log.segments) == sorted(right.log.segments)
