"""The connection to Cassandra refused, stalled and cut while the agent runs, under load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.agents import AgentProcess
from tests.integration.faults.load import Load
from tests.integration.faults.trial import Settings, Trial, until_more
from tests.services.proxy import Proxy


@pytest.fixture
def proxy(trial: Trial) -> Iterator[Proxy]:
    """What stands between the agent and the node; the test itself goes past it."""
    with Proxy((trial.cassandra.address, trial.cassandra.port)) as proxy:
        yield proxy


def by_way_of(proxy: Proxy, trial: Trial) -> Settings:
    """Settings of an agent that does not wait long."""
    settings = trial.settings
    settings["cluster"] = {
        "contact_points": [proxy.address],
        "port": proxy.port,
        "connect_timeout_seconds": 2,
        "request_timeout_seconds": 2,
    }
    return settings


def alter(trial: Trial, load: Load, name: str) -> None:
    """A table made, widened, and switched off and on, a write at once behind each of it: 1, 2 and 4 are published."""
    with load.paused():
        trial.ddl(f"CREATE TABLE #.{name} (k int PRIMARY KEY) WITH cdc = true", writes=(row(name, 1),))
        trial.ddl(f"ALTER TABLE #.{name} ADD w int", writes=(f"INSERT INTO #.{name} (k, w) VALUES (2, 7)",))
        trial.ddl(f"ALTER TABLE #.{name} WITH cdc = false", writes=(row(name, 3),))
        trial.ddl(f"ALTER TABLE #.{name} WITH cdc = true", writes=(row(name, 4),))


def row(name: str, key: int) -> str:
    return f"INSERT INTO #.{name} (k) VALUES ({key})"


def until_degraded(agent: AgentProcess, cause: str) -> str:
    """Wait until health names the cause; its words."""
    agent.until(lambda: cause in agent.status().get("degraded", {}))
    return str(agent.status()["degraded"][cause])


@pytest.mark.promise("agent.no-connection")
@pytest.mark.long
def test_while_it_runs(trial: Trial, proxy: Proxy) -> None:
    """Changes go on; DDL counts by its position, as the log tells it; health says that the schema cannot be read, and
    that it can again."""
    load = trial.load(rate=200)
    with trial.agent(settings=by_way_of(proxy, trial)) as agent:
        until_more(agent)
        proxy.cut()
        until_more(agent)
        agent.until(lambda: agent.faults() == {})
        proxy.refuse()
        assert "cluster.contact_points" in until_degraded(agent, "schema")
        alter(trial, load, "refused")
        until_more(agent)
        proxy.flow()
        agent.until(lambda: agent.faults() == {})
        proxy.stall()
        alter(trial, load, "stalled")
        until_more(agent)
        until_degraded(agent, "schema")
        until_more(agent)
        proxy.flow()
        agent.until(lambda: agent.faults() == {})
        load.end()
        trial.settle(agent)
    for name in ("refused", "stalled"):
        keys = sorted(int.from_bytes(record.change.key or b"", "big") for record in trial.records(name))
        assert keys == [1, 2, 4]
