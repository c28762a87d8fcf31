"""A node with CDC off, and a role that may not read its settings: agent and check say so, and neither is content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tailrace.cli.checks.cassandra import check_cassandra
from tailrace.cluster import LiveCluster
from tailrace.driver import Contact
from tailrace.local import LocalCassandra, LocalKafka
from tailrace.local.cassandra import CassandraSettings
from tailrace_common.settings import load_settings
from tailrace_schemas.errors import ServiceError
from tests.integration.agents import AgentProcess, ints, published, settings_for
from tests.support.waiting import until

GUARDED: Final = {
    "authenticator": "PasswordAuthenticator",
    "authorizer": "CassandraAuthorizer",
    "role_manager": "CassandraRoleManager",
    "permissions_validity": "0ms",
}
ROLE: Final = "tailrace"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalCassandra]:
    """A node of the test's own that asks for rights, and has CDC off."""
    settings = CassandraSettings(heap_mib=384, yaml={**GUARDED, "cdc_enabled": False})
    with LocalCassandra(tmp_path / "cassandra", settings) as node:
        yield node


def execute(node: LocalCassandra, *statements: str) -> None:
    """As the superuser."""
    contact = Contact(hosts=(node.address,), port=node.port, username="cassandra", password="cassandra")  # noqa: S106
    with closing(LiveCluster(contact)) as cluster:
        for statement in statements:
            cluster.execute(statement)


def is_open(node: LocalCassandra) -> bool:
    """Whether the superuser, whom the node makes some time after its first start, may log in."""
    try:
        execute(node)
    except ServiceError:
        return False
    return True


def failing(agent: AgentProcess) -> dict[str, str]:
    """The checks of Cassandra that fail with the agent's settings: name -> detail and advice."""
    rows = check_cassandra(load_settings(agent.settings, os.environ))
    return {row.name: f"{row.detail} {row.advice}" for row in rows if not row.ok}


@pytest.mark.promise("agent.node-settings")
def test_a_node_without_cdc_and_a_role_without_rights(
    node: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """Not ready and named, each until it is mended: the agent then goes on by itself. A flag that is set while the
    node has CDC off is not stored, and has to be set again."""
    until(lambda: is_open(node), "CQL clients to be let in")
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    execute(
        node,
        f"CREATE ROLE {ROLE} WITH LOGIN = true AND PASSWORD = 'pw'",
        f"CREATE KEYSPACE {keyspace_name} WITH replication = {replication}",
        f"CREATE TABLE {keyspace_name}.t (k int PRIMARY KEY) WITH cdc = true",
    )
    settings = settings_for(node, kafka, prefix)
    settings["cluster"] |= {"username": ROLE, "password": "pw"}
    node.cdc_raw.mkdir(exist_ok=True)
    with AgentProcess(tmp_path, settings) as agent:

        def degraded(cause: str) -> str:
            return str(agent.status().get("degraded", {}).get(cause, ""))

        agent.until(lambda: degraded("node settings") != "")
        assert "GRANT SELECT ON KEYSPACE system_views" in degraded("node settings")
        assert agent.status()["ready"] is False
        rows = failing(agent)
        assert "GRANT SELECT ON KEYSPACE system_views" in rows["node settings"]
        assert rows["cdc_enabled"].startswith("unknown")

        grants = (f"GRANT SELECT ON KEYSPACE {one} TO {ROLE}" for one in ("system_views", "system_virtual_schema"))
        execute(node, *grants)
        agent.until(lambda: degraded("cdc_enabled") != "")
        assert "set cdc_enabled: true in cassandra.yaml" in degraded("cdc_enabled")
        assert degraded("node settings") == ""
        assert agent.status()["ready"] is False
        assert "set cdc_enabled: true in cassandra.yaml" in failing(agent)["cdc_enabled"]

        node.settings = replace(node.settings, yaml=GUARDED)
        node.restart()
        execute(node, f"ALTER TABLE {keyspace_name}.t WITH cdc = true", f"INSERT INTO {keyspace_name}.t (k) VALUES (1)")
        agent.until_ready()
        agent.until(lambda: ints(published(kafka, prefix, f"{prefix}.{keyspace_name}.t")) == {1: 1})
        agent.until(lambda: agent.status()["degraded"] == {})
        assert failing(agent) == {}
        assert agent.stop() == 0, agent.words()
    said = agent.log.read_text()
    assert said.count("cdc_enabled is false on this node") == 1, "it is said once"
