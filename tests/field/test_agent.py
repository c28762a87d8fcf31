"""What no agent can read on its node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace.segments.files import list_segments
from tests.integration.agents import AgentProcess, cql, create_keyspace, settings_for

pytestmark = [pytest.mark.integration, pytest.mark.long]

ACCORD = CassandraSettings(release="6.0", yaml={"accord": {"enabled": True}})


def test_tables_of_accord_are_named_as_they_reach_no_log(kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    """Cassandra 6 keeps their writes in Accord's journal. The table beside them is captured as ever."""
    with LocalCassandra(tmp_path / "node", ACCORD) as node, cql(node, ConsistencyLevel.QUORUM) as session:
        create_keyspace(session, "shop")
        session.execute("CREATE TABLE shop.plain (id int PRIMARY KEY, v text) WITH cdc = true")
        with AgentProcess(tmp_path, settings_for(node, kafka, prefix, "shop")) as agent:
            agent.until_ready()
            assert agent.faults() == {}
            modes = {"whole": "'full'", "mixed": "'mixed_reads'", "back": "'full'"}
            for name, mode in modes.items():
                options = f"cdc = true AND transactional_mode = {mode}"
                session.execute(f"CREATE TABLE shop.{name} (id int PRIMARY KEY, v text) WITH {options}")
            session.execute("ALTER TABLE shop.back WITH transactional_mode = 'off'")
            for name in modes:
                session.execute(f"INSERT INTO shop.{name} (id, v) VALUES (1, 'a')")
            agent.until(lambda: agent.status()["gauges"].get("bypassing_tables") == 3)
            assert not any(files.index for files in list_segments(node.cdc_raw).segments), "they are logged"
            session.execute("INSERT INTO shop.plain (id, v) VALUES (1, 'a')")
            agent.until(lambda: agent.count("changes") == 1)
            words = agent.status()["degraded"]["bypassing"]
            assert "shop.whole (transactional_mode = 'full')" in words
            assert "shop.mixed (transactional_mode = 'mixed_reads')" in words
            assert "shop.back (its migration from transactional_mode = 'full' is not finished)" in words
            rows = {row["name"]: row for row in map(json.loads, agent.command("check", code=1).splitlines())}
            assert [name for name, row in rows.items() if not row["ok"]] == ["tables logged"]
            assert all(f"shop.{name} (" in rows["tables logged"]["detail"] for name in modes)
            for name in modes:
                session.execute(f"DROP TABLE shop.{name}")
            agent.until(lambda: agent.faults() == {})
            assert agent.status()["gauges"]["bypassing_tables"] == 0
