"""Patterns that select no table with cdc: nothing is released, and everybody is told; then it goes on.

Tables whose writes never reach cdc_raw, in the agent's health.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from uuid import uuid4

import pytest

from tailrace.agent.limits import Limits
from tailrace.agent.tables import BYPASSING
from tailrace_common.selection import Selection
from tailrace_schemas.change import Op, Origin
from tailrace_schemas.errors import ServiceError
from tests.support.kafka import Faults
from tests.unit.agent.world import ELSEWHERE, NOTES, ORDERS, World, entries, world_with
from tests.unit.ddl import NOW, alter, create, drop, truncate

MISTYPED = Selection(("kss.*",))
OTHER = replace(ELSEWHERE, cdc=True)
LOGGED = {"ks": {"durable_writes": True, "replication": {}}}
NOT_LOGGED = {"ks": {"durable_writes": False, "replication": {}}}


@pytest.mark.promise("agent.nothing-selected")
def test_patterns_that_select_nothing_lose_nothing() -> None:
    """The segment stays, the agent is not ready and says why; with the right pattern everything is published, in its
    order, once."""
    world = world_with(entries("ab"), selection=MISTYPED)
    world.log.append(2, entries("c"))
    world.live()
    assert (world.keys(), sorted(world.log.segments)) == ([], [1, 2])
    words = world.health.now.degraded["selection"]
    assert 'tables.include: "kss.*" matches no table (did you mean "ks.*"?)' in words
    assert "changes of ks.orders are parked" in words
    assert "tables.release_unselected" in words
    assert not world.health.now.ready
    gauges = world.health.now.gauges
    assert (gauges["selected_tables"], gauges["unselected_tables"], gauges["unmatched_patterns"]) == (0, 1, 1)
    world.live()
    assert sorted(world.log.segments) == [1, 2], "a restart changes nothing"
    world.selection = Selection(("ks.*",))
    world.log.append(3, entries("d"))
    world.live()
    assert (world.keys(), world.log.segments, world.health.now.degraded) == (list("abcd"), {}, {})
    assert world.health.now.ready


def test_changes_are_given_up_on_demand() -> None:
    """Also those that were parked before."""
    world = world_with(entries("ab"), selection=MISTYPED)
    world.live()
    world.release_unselected = True
    world.log.append(2, entries("c"))
    world.live()
    assert (world.keys(), world.log.segments, world.kafka.resume.parked) == ([], {}, ())
    assert world.health.now.degraded == {"selection": 'tables.include: "kss.*" matches no table (did you mean "ks.*"?)'}
    assert world.health.now.ready


def test_what_cannot_be_parked_is_kept_too() -> None:
    """Nothing moves where there are more mutations than may be parked."""
    world = world_with(entries("abcd"), selection=MISTYPED, limits=Limits(parked=2, read=4))
    world.live()
    assert (sorted(world.log.segments), world.position) == ([1], (1, 2))
    world.selection = Selection()
    world.live()
    assert sorted(world.keys()) == list("abcd")
    assert world.log.segments == {}


@pytest.mark.promise("agent.nothing-selected")
def test_tables_that_no_pattern_takes_are_named_and_released_beside_selected_ones() -> None:
    world = world_with([*entries("a"), *entries("b", OTHER)], selection=Selection(("ks.*",)), tables=[ORDERS, OTHER])
    world.live()
    assert (world.keys(), world.log.segments) == (["a"], {})
    assert (
        "other.x has cdc = true, but no pattern of tables.include matches it" in world.health.now.degraded["selection"]
    )
    assert world.health.now.ready
    world.selection = Selection(("ks.*",), ("other.*",))
    world.live()
    assert world.health.now.degraded == {}, "it is left out on purpose"


def test_a_cluster_without_cdc_is_no_mistake() -> None:
    """What no table with cdc has written is released as always."""
    world = world_with(entries("ab", NOTES), tables=[NOTES, ELSEWHERE])
    world.live()
    assert (world.log.segments, world.health.now.degraded, world.health.now.ready) == ({}, {}, True)


def test_a_pattern_without_a_table_is_named_until_the_table_is_there() -> None:
    """The judgement follows the schema while the agent runs."""
    soon = replace(ORDERS, name="soon", keyspace="later", id=uuid4())
    world = world_with(entries("a", OTHER), selection=Selection(("later.*",)), tables=[OTHER])
    seen = list[tuple[bool, list[int]]]()

    def come() -> None:
        seen.append((world.health.now.ready, sorted(world.log.segments)))
        if len(seen) == 1:
            world.tables.append(soon)
            world.log.append(2, [create(soon), *entries("b", soon)])

    world.live(idle_waits=6, on_wait=come)
    assert seen[0] == (False, [1])
    assert (world.keys(), world.log.segments) == (["b"], {}), "a selected table is there: no pattern was wrong"
    assert "other.x" in world.health.now.degraded["selection"]


def test_a_table_whose_flag_goes_takes_the_selection_with_it() -> None:
    """What it wrote while it was true is published; what the other table writes is kept from then on."""
    world = world_with(entries("a"), selection=Selection(("ks.*",)), tables=[replace(ORDERS, cdc=True), OTHER])
    world.live()
    off = replace(ORDERS, cdc=False)
    world.tables[0] = off
    world.log.append(2, [*entries("b"), alter(ORDERS, off), *entries("c", OTHER)])
    world.live()
    assert (world.keys(), sorted(world.log.segments)) == (["a", "b"], [2])
    assert not world.health.now.ready
    assert "ks.orders" not in world.health.now.degraded["selection"]


def test_a_truncation_is_kept_with_the_changes() -> None:
    world = world_with([*entries("a"), truncate(ORDERS.id, 1_600_000_000_000)], final=False, selection=MISTYPED)
    world.live()
    assert world.keys() == []
    world.selection = Selection()
    world.live()
    assert [change.op for change in world.changes()].count(Op.TRUNCATE) > 0
    sources = [change.source for change in world.changes() if change.op is not Op.TRUNCATE]
    assert [source and source.origin for source in sources] == [Origin.PARKED]


def test_health_says_so_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    """ALTER KEYSPACE ends it, as it may begin it; the log says each once."""
    world = World(keyspaces=dict(NOT_LOGGED))
    caplog.set_level(logging.INFO, "tailrace.agent")
    degraded: list[str | None] = []

    def look() -> None:
        degraded.append(world.health.now.degraded.get(BYPASSING))
        if len(degraded) == 5:
            world.keyspaces.update(LOGGED)
            assert world.schema is not None
            world.schema.hint()

    world.log.append(1, entries("a"))
    world.live(idle_waits=10, on_wait=look)
    assert degraded[0] is not None
    assert "nothing is captured of ks.orders (keyspace ks has durable_writes = false)" in degraded[0]
    assert "ALTER KEYSPACE ks WITH durable_writes = true" in degraded[0]
    assert degraded[-1] is None
    assert world.health.now.gauges["bypassing_tables"] == 0
    assert [record.levelname for record in caplog.records if "commit log" in record.message] == ["ERROR", "INFO"]


def test_a_table_that_is_not_selected_is_nobody_s_concern() -> None:
    world = World(keyspaces=dict(NOT_LOGGED), selection=Selection(exclude=("ks.orders",)), release_unselected=True)
    world.live()
    assert BYPASSING not in world.health.now.degraded
    assert world.health.now.gauges["bypassing_tables"] == 0


@pytest.mark.parametrize("end", ["made", "dropped"])
def test_health_says_of_a_refused_topic_while_it_is_refused(end: str) -> None:
    """A session that ends meanwhile changes nothing in that."""
    world = world_with(entries("a"), final=False)
    late = replace(ORDERS, name="late", id=uuid4())
    world.kafka.refused.add("ks.late")
    told = list[bool]()

    def come() -> None:
        told.append("schema of ks.late" in world.health.now.degraded)
        if len(told) == 2:
            world.log.append(2, [create(late), *entries("b")], final=False)
        if len(told) == 20 and end == "made":
            world.kafka.refused.clear()
        elif len(told) == 20:
            world.log.append(2, [drop(late, NOW + 1), *entries("c")], final=False)

    failing = Faults("commit", 3, ServiceError("Kafka is down"))
    world.live(failing, idle_waits=80, on_wait=come)
    assert failing.seen["start"] == 2
    assert all(told[5:20])
    assert world.health.now.degraded == {}
