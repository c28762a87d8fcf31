"""Transactions without room for the next mutation: they are committed first, with the position of what they have."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from tailrace.agent.limits import Limits
from tailrace_common.kafka import Pace
from tailrace_schemas.table import Table
from tests.support.kafka import Crash, Faults
from tests.unit.agent.world import LATE, ORDERS, World, every_fault, explain
from tests.unit.mutations import deletion

# Lengths of keys, which a record has twice: of its 64 KiB a transaction has room for one large one, or six small ones.
LARGE, SMALL = 20_000, 5_000
OTHER = replace(ORDERS, name="other", id=uuid4())
UNKNOWN = replace(ORDERS, name="late", id=LATE)


def cramped_world(*tables: tuple[str, Table]) -> World:
    """A mutation for each letter, of its table; capital ones are large."""
    world = World(limits=Limits(changes=100, read=100))
    world.pace = Pace(10, 600, world.clock, rate=26_000)
    world.tables.append(OTHER)
    keys = [(table, name * (LARGE if name.isupper() else SMALL)) for names, table in tables for name in names]
    world.log.append(1, [deletion(table, key.encode()) for table, key in keys])
    return world


def world_with_every_way() -> World:
    """Mutations that come singly as their table is new, plain ones, and ones that were parked."""
    return cramped_world(("AB", ORDERS), ("C", OTHER), ("XY", UNKNOWN), ("defghijkl", ORDERS), ("M", OTHER))


def lived(faults: Faults, world: World | None = None) -> None:
    """A life in which the unknown table comes."""
    world = world or world_with_every_way()
    world.live(faults, idle_waits=6, on_wait=explain(world, UNKNOWN))


@pytest.mark.slow
@pytest.mark.promise("agent.exactly-once")
@pytest.mark.parametrize("faults", every_fault(lived, Crash), ids=lambda f: f"{f.step}-{f.nth}")
def test_a_crash_behind_a_commit_for_want_of_room_loses_nothing(faults: Faults) -> None:
    """Nor at any other step; and nothing comes twice."""
    world = world_with_every_way()
    try:
        lived(faults, world)
    except Crash:
        lived(Faults(), world)
    published = sorted(change.key[:1] for change in world.changes() if change.key is not None)
    assert b"".join(published) == b"ABCMXYdefghijkl"
    assert world.kafka.resume.parked == ()


def test_each_mutation_is_counted_once_wherever_transactions_end() -> None:
    world = cramped_world(("AB", ORDERS), ("C", OTHER), ("defghijklmnopq", ORDERS), ("R", OTHER))
    world.live()
    assert world.kafka.ends == [1, 2, 5, 11, 17, 18]
    counts = world.health.now.counts
    assert (counts["mutations"], counts["changes"], counts["transactions"]) == (18, 18, 6)
