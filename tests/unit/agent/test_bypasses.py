"""Tables whose writes never reach cdc_raw, in the agent's health."""

from __future__ import annotations

import logging

import pytest

from tailrace.agent.bypasses import CAUSE
from tailrace.publish.selection import Selection
from tests.unit.agent.world import World, entries

LOGGED = {"ks": {"durable_writes": True, "replication": {}}}
NOT_LOGGED = {"ks": {"durable_writes": False, "replication": {}}}


def test_health_says_so_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    """ALTER KEYSPACE ends it, as it may begin it; the log says each once."""
    world = World(keyspaces=dict(NOT_LOGGED))
    caplog.set_level(logging.INFO, "tailrace.agent")
    degraded: list[str | None] = []

    def look() -> None:
        degraded.append(world.health.now.degraded.get(CAUSE))
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
    assert CAUSE not in world.health.now.degraded
    assert world.health.now.gauges["bypassing_tables"] == 0
