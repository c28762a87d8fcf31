"""The agent beside what its node writes and deletes, or what no agent can read there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from cassandra.query import BatchStatement, BatchType

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tests.integration.agents import AgentProcess, cql, create_keyspace, settings_for

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROWS = 40_000
# Its memtables are flushed while the rows are written: Cassandra then deletes the segments that have them.
FLUSHING = CassandraSettings(yaml={"memtable_heap_space": "16MiB"})


def test_writes_to_a_new_table_without_cdc_leave_the_agent_at_rest(
    kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    """CREATE TABLE and 40,000 rows of 100 bytes right behind it, in a keyspace of a table with cdc."""
    with LocalCassandra(tmp_path / "node", FLUSHING) as node, cql(node) as session:
        create_keyspace(session, "shop")
        session.execute("CREATE TABLE shop.orders (id int PRIMARY KEY, v text) WITH cdc = true")
        session.execute("INSERT INTO shop.orders (id, v) VALUES (1, 'a')")
        with AgentProcess(tmp_path, settings_for(node, kafka, prefix, "shop")) as agent:
            agent.until_ready().until(lambda: agent.count("changes") == 1)
            session.execute("CREATE TABLE shop.other (id int PRIMARY KEY, v text)")
            insert = session.prepare("INSERT INTO shop.other (id, v) VALUES (?, ?)")
            segments = {path.name for path in node.cdc_raw.glob("*.log")}
            for start in range(0, ROWS, 100):
                rows = BatchStatement(BatchType.UNLOGGED)
                for key in range(start, start + 100):
                    rows.add(insert, (key, "x" * 100))
                session.execute(rows)
                segments |= {path.name for path in node.cdc_raw.glob("*.log")}
            deleted = segments - {path.name for path in node.cdc_raw.glob("*.log")}
            assert len(deleted) > 2, "nothing was flushed"
            looks = agent.count("all_published")
            agent.until(lambda: agent.count("all_published") > looks + 20)
            status = agent.status()
            assert status["degraded"] == {}
            assert status["counts"]["transactions"] < 20
            session.execute("INSERT INTO shop.orders (id, v) VALUES (2, 'b')")
            agent.until(lambda: agent.count("changes") == 2)
            assert agent.stop() == 0
            words = agent.log.read_text()
        assert "from its open file" not in words
        released = Counter(line.rpartition("released segment ")[2] for line in words.splitlines() if "released" in line)
        assert max(released.values()) == 1
