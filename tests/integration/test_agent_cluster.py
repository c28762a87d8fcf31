"""What the agent asks of the node beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tailrace.cluster import LiveCluster
from tailrace.driver import Contact
from tailrace.local import LocalCassandra
from tests.integration.agents import cql, create_keyspace
from tests.support.waiting import until


@pytest.fixture
def events() -> list[str]:
    """What the driver told."""
    return []


@pytest.fixture
def cluster(cassandra: LocalCassandra, events: list[str]) -> Iterator[LiveCluster]:
    """A connection to the shared node."""
    contact = Contact(hosts=(cassandra.address,), port=cassandra.port)
    with closing(LiveCluster(contact, events.append)) as cluster:
        yield cluster


def test_hears_of_every_change(
    cluster: LiveCluster, cassandra: LocalCassandra, keyspace_name: str, events: list[str]
) -> None:
    """Keyspaces, types and tables: added, changed, dropped; the version changes with them."""
    before = cluster.schema_version()
    name = keyspace_name
    with cql(cassandra) as session:
        create_keyspace(session, name)
        session.execute(f"CREATE TYPE {name}.u (a int)")
        session.execute(f"ALTER TYPE {name}.u ADD b int")
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY) WITH cdc = true")
        session.execute(f"ALTER TABLE {name}.t WITH cdc = false")
        during = cluster.schema_version()
        session.execute(f"DROP TABLE {name}.t")
        session.execute(f"DROP KEYSPACE {name}")
    wanted = {
        f"KEYSPACE {name} CREATED",
        f"TYPE {name}.u CREATED",
        f"TYPE {name}.u UPDATED",
        f"TABLE {name}.t CREATED",
        f"TABLE {name}.t UPDATED",
        f"TABLE {name}.t DROPPED",
        f"KEYSPACE {name} DROPPED",
    }
    until(lambda: wanted <= set(events), "events of the node", state=lambda: events)
    assert during != before
