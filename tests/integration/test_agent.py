"""The agent on a real node and a real Kafka: what is written arrives once, in order, whatever is killed meanwhile."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from tailrace.local.ports import free_port
from tailrace_schemas.change import Op
from tailrace_schemas.tokens import partition, token
from tests.integration.agents import AgentProcess, in_log_order, ints, settings_for
from tests.integration.bench import Bench


@pytest.mark.spine
@pytest.mark.promise("agent.partition-by-token", "others.no-fault")
def test_every_change_arrives_once_where_its_token_says(bench: Bench) -> None:
    """A table created with cdc = true, and written at once while the agent runs."""
    with bench.agent() as agent:
        agent.until_ready()
        bench.create()
        bench.write(range(500))
        agent.until(lambda: agent.count("changes") >= 500)
        agent.until(lambda: (agent.status().get("ring") or {}).get("state") == "covered")
        assert agent.status()["ring"]["nodes"] == 1
        assert agent.stop() == 0, agent.words()
    records = bench.records()
    assert ints(records) == Counter(range(500))
    assert in_log_order(records)
    for record in records:
        assert record.change.key is not None
        assert record.partition == partition(token(record.change.key), 3)
        assert record.change.op is Op.INSERT


@pytest.mark.promise("agent.wrong-directory")
@pytest.mark.long
def test_an_agent_of_a_wrong_directory_fences_nobody(bench: Bench, tmp_path: Path) -> None:
    """One that is not there, and one that is not the node's: exit code 2, and the healthy agent goes on."""
    bench.create()
    with bench.agent("healthy") as healthy:
        healthy.until_ready()
        for name, there in (("gone", False), ("elsewhere", True)):
            directory = tmp_path / name
            if there:
                directory.mkdir()
            elsewhere = {"agent": {"cdc_raw_directory": str(directory)}}
            with bench.agent(name, elsewhere) as wrong:
                assert wrong.ended() == 2
            assert f"tailrace: agent.cdc_raw_directory: {'' if there else 'cannot list '}{directory}" in wrong.words()
            assert "publishing as host" not in wrong.words()
        bench.write(range(100))
        healthy.until(lambda: healthy.count("changes") >= 100)
        assert healthy.stop() == 0
    assert bench.key_counts() == Counter(range(100))


@pytest.mark.promise("agent.dropped-while-unread")
def test_a_table_dropped_while_unread_is_published_whole(bench: Bench) -> None:
    """Its definition was known; what was written before the DROP counts."""
    bench.create()
    bench.create("later")
    with bench.agent() as agent:
        agent.until_ready()
        bench.write(range(1))
        agent.until(lambda: agent.count("changes") >= 1)
        agent.signal(signal.SIGSTOP)
        bench.write(range(1, 50))
        bench.run("DROP TABLE #.t")
        bench.write(range(10), "later")
        agent.signal(signal.SIGCONT)
        agent.until(lambda: agent.count("changes") >= 60)
        assert agent.stop() == 0
    assert bench.key_counts() == Counter(range(50))
    assert bench.key_counts("later") == Counter(range(10))


@pytest.mark.promise("agent.no-connection-at-start")
def test_an_agent_without_its_node_waits_and_can_be_stopped(bench: Bench, tmp_path: Path) -> None:
    """It says what is missing, is alive but not ready, and ends in order."""
    settings = settings_for(bench.cassandra, bench.kafka, bench.prefix)
    settings["cluster"]["port"] = free_port("127.0.0.1")
    with AgentProcess(tmp_path, settings, "lonely") as agent:
        agent.until(lambda: "cluster.contact_points" in agent.status().get("degraded", {}).get("service", ""))
        status = agent.status()
        assert (status["live"], status["ready"]) == (True, False)
        assert agent.stop() == 0
