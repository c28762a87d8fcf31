"""Patterns that select no table with cdc: nothing is lost, and the agent and the check name them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from tailrace.cli.checks.cassandra import check_cassandra
from tailrace_common.settings import load_settings
from tests.integration.agents import AgentProcess, ints
from tests.integration.faults.trial import Trial, finished, number
from tests.integration.processes import PROGRAM
from tests.support.waiting import until


def selecting(trial: Trial, **tables: object) -> dict[str, dict[str, object]]:
    return {**trial.settings, "tables": tables}


def failing(agent: AgentProcess) -> dict[str, str]:
    """The checks of Cassandra that fail with the agent's settings: name -> detail."""
    rows = check_cassandra(load_settings(agent.settings, os.environ))
    return {row.name: row.detail for row in rows if not row.ok}


def parked_segments(agent: AgentProcess) -> set[int]:
    """The segments with parked mutations; earlier ones of the node may have none, and are released."""
    command = [sys.executable, *PROGRAM, "parked", "list", "-c", str(agent.settings)]
    rows = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout.splitlines()
    return {json.loads(row)["segment"] for row in rows}


@pytest.mark.promise("agent.nothing-selected")
def test_a_pattern_that_matches_nothing_loses_nothing(trial: Trial) -> None:
    """A mistyped keyspace: segments stay, the agent is not ready, and with the right pattern each row comes once."""
    mistyped = f"x{trial.keyspace}.*"
    first = trial.mark()
    load = trial.load(rate=50, bulk=60_000)
    trial.until_segments(2)
    load.end()
    last = trial.mark()
    with trial.agent("mistyped", selecting(trial, include=[mistyped])) as agent:
        until(lambda: bool(finished(trial)), "a segment that Cassandra writes no more")

        def status() -> dict[str, Any]:
            return agent.status()

        agent.until(lambda: "selection" in status().get("degraded", {}))
        words = status()["degraded"]["selection"]
        assert f'tables.include: "{mistyped}" matches no table (did you mean' in words
        assert f"{trial.keyspace}.marks" in words or "more" in words
        assert status()["ready"] is False
        assert status()["gauges"]["unmatched_patterns"] == 1

        def parked() -> bool:
            return bool(status()["gauges"].get("parked_now", 0) > last - first)

        until(parked, "parked mutations", state=agent.words)
        segments = {number(path) for path in finished(trial)} & parked_segments(agent)
        assert segments
        rows = failing(agent)
        assert "none of the tables with cdc = true is selected" in rows["tables"]
        assert mistyped in rows["patterns"]
        assert agent.stop() == 0, agent.words()
    # By hand neither, while the pattern is what it is.
    retry = [sys.executable, *PROGRAM, "parked", "retry", "--yes", "--fence", "-c", str(agent.settings)]
    outcome = subprocess.run(retry, capture_output=True, text=True, timeout=600, check=False)
    assert outcome.returncode == 3, outcome.stderr
    assert "0 mutations published" in outcome.stderr
    assert "no table with cdc = true is selected" in outcome.stderr
    assert segments <= {number(path) for path in trial.cassandra.cdc_raw.glob("*.log")}
    with trial.agent() as agent:
        agent.until(lambda: trial.is_published(last))
        assert ints(trial.records("marks")) == Counter(range(first, last + 1))
        agent.until(lambda: not segments & {number(path) for path in trial.cassandra.cdc_raw.glob("*.log")})
        assert agent.status()["ready"] is True
        assert agent.stop() == 0, agent.words()
