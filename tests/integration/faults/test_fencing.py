"""Two agents for one node, or one directory, under load."""

from __future__ import annotations

import pytest

from tailrace.capture.owner import read_owner
from tests.integration.agents import AgentProcess
from tests.integration.faults.trial import Trial, until_more


@pytest.mark.promise("agent.one-per-node")
def test_of_two_agents_for_one_node_the_older_is_fenced(trial: Trial) -> None:
    """It ends with exit code 5 and says why; the newer one goes on where it was, and nothing is published twice."""
    load = trial.load(rate=200)
    with trial.agent("older") as older:
        until_more(older)
        with trial.agent("newer") as newer:
            assert older.ended() == 5
            until_more(newer)
            load.end()
            trial.settle(newer)
    assert "another agent started" in older.words()
    behind = older.log.read_text().partition(" another agent started")[0].splitlines()
    assert [line for line in behind if "FATAL" in line or "fenced" in line] == []
    assert f", pid {newer.process.pid})" in older.words()


@pytest.mark.promise("agent.one-per-directory", "agent.another-prefix")
def test_an_agent_of_another_prefix_deletes_nothing(trial: Trial) -> None:
    """While the owner runs, and after it was killed, the second one ends and says what to do; the owner loses nothing,
    and goes on after its crash; by --take-over the directory changes hands."""
    settings = trial.settings
    settings["topics"] = {**settings["topics"], "prefix": f"{trial.prefix}-second"}
    second = AgentProcess(trial.place, settings, "second", disowns=False)
    load = trial.load(rate=200)
    with trial.agent() as owner:
        until_more(owner)
        with second:
            assert second.ended() == 5
        until_more(owner)
        owner.kill()
        with second:
            assert second.ended() == 2
        words = second.words()
        assert f"another agent reads {trial.cassandra.cdc_raw}: the agent with topics.prefix = " in words
        assert f'{trial.cassandra.cdc_raw} is owned by the agent with topics.prefix = "{trial.prefix}"' in words
        assert "tailrace agent --take-over" in words
        owner.start()
        until_more(owner)
        load.end()
        trial.settle(owner)
    with AgentProcess(trial.place, settings, "second", disowns=False, options=("--take-over",)) as second:
        second.until_ready()
        mark = read_owner(trial.cassandra.cdc_raw)
        assert mark is not None
        assert mark.prefix == f"{trial.prefix}-second"
