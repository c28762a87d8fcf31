"""A node is drained, and its volume may go once `tailrace drain` has said so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cassandra.concurrent import execute_concurrent_with_args

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tests.integration.agents import AgentProcess, cql, create_keyspace, ints, published, settings_for
from tests.integration.processes import PROGRAM

ROWS = 3000


def drain(settings: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *PROGRAM, "drain", "-c", str(settings), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.long
def test_everything_of_a_drained_node_is_in_kafka(kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    node = LocalCassandra(tmp_path / "node", CassandraSettings(jmx_port=0))
    with node, cql(node) as session:
        create_keyspace(session, "shop")
        session.execute("CREATE TABLE shop.t (k int PRIMARY KEY, v text) WITH cdc = true")
        settings = settings_for(node, kafka, prefix)
        with AgentProcess(tmp_path, settings) as agent:
            agent.until_ready(120)
            insert = session.prepare("INSERT INTO shop.t (k, v) VALUES (?, ?)")
            execute_concurrent_with_args(session, insert, [(number, "v" * 500) for number in range(ROWS)])
            running = drain(agent.settings, "--timeout", "1")
            assert (running.returncode, "still serves CQL" in running.stderr) == (1, True), running.stderr
            node.nodetool("drain")
            ended = drain(agent.settings, "--timeout", "120")
            assert ended.returncode == 0, ended.stderr + agent.words()
            assert "everything that the node logged is in Kafka" in ended.stderr
            keys = ints(published(kafka, prefix, f"{prefix}.shop.t"))
            assert len(keys) == ROWS
            assert set(keys.values()) == {1}
            assert agent.stop() == 0
            stopped = drain(agent.settings, "--timeout", "1")
            assert (stopped.returncode, "does not answer" in stopped.stderr) == (1, True), stopped.stderr
