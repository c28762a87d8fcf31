"""What the agent asks of the node beside it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.cluster import MURMUR3, LiveCluster, ring_of
from tailrace.driver import Contact
from tailrace.local import CassandraSettings, LocalCassandra
from tailrace.local.ports import free_port
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table
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


def tables_of(cluster: LiveCluster, keyspace: str) -> dict[str, Table]:
    """The keyspace's tables and views by name."""
    definitions = cluster.definitions()
    assert definitions.problems == ()
    return {table.name: table for table in definitions.tables if table.keyspace == keyspace}


def test_knows_the_node(cluster: LiveCluster, cassandra: LocalCassandra) -> None:
    """Who it is, and that we agree on tokens; the ring is its own."""
    node = cluster.check()
    assert (node.partitioner, node.release) == (MURMUR3, "5.0.9")
    ring = cluster.ring()
    assert [one.host for one in ring.nodes] == [node.host]
    assert len(ring.tokens) == cassandra.settings.num_tokens
    assert ring.normal


def test_a_node_says_who_joins_leaves_or_moves(cluster: LiveCluster) -> None:
    """Its own row in gossip is what the ring goes by: another word there, and the ring is not settled."""
    [owner] = cluster.execute("SELECT host_id, data_center, tokens FROM system.local")
    [state] = cluster.execute("SELECT host_id, dc, status, status_with_port FROM system_views.gossip_info")
    assert state["status_with_port"].startswith("NORMAL,")
    ring = ring_of([owner], [state])
    assert (ring, ring.normal) == (cluster.ring(), True)
    leaving = {**state, "status_with_port": state["status_with_port"].replace("NORMAL", "LEAVING")}
    assert not ring_of([owner], [leaving]).normal


@pytest.mark.long
def test_a_node_that_joins_and_leaves(tmp_path: Path) -> None:
    """While it does the ring is not settled, before and after it is; each takes a ring delay."""
    small = CassandraSettings(heap_mib=384)
    with LocalCassandra(tmp_path / "one", small) as one, ThreadPoolExecutor(1) as pool:
        joining = replace(
            small,
            address="127.0.0.2",
            storage_port=one.storage_port,
            seeds=(one.address,),
            jmx_port=0,
            ring_delay_ms=3000,
            yaml={"auto_bootstrap": True},
        )
        contact = Contact(hosts=(one.address,), port=one.port)
        two = LocalCassandra(tmp_path / "two", joining)
        with closing(LiveCluster(contact)) as cluster, ExitStack() as stack:
            stack.callback(two.kill)
            assert cluster.ring().normal
            started = pool.submit(two.start)
            until(lambda: not cluster.ring().normal, "a ring that changes")
            assert [len(node.tokens) for node in cluster.ring().nodes if not node.normal] == [0]
            started.result(90)
            until(lambda: len(cluster.ring().tokens) == 8 and cluster.ring().normal, "a ring of two nodes")
            left = pool.submit(two.nodetool, "decommission", "--force")
            until(lambda: not cluster.ring().normal, "a ring that changes")
            assert [len(node.tokens) for node in cluster.ring().nodes if not node.normal] == [4]
            left.result(90)
            until(lambda: len(cluster.ring().tokens) == 4 and cluster.ring().normal, "a ring of one node")


def test_reads_every_kind_of_definition(cluster: LiveCluster, cassandra: LocalCassandra, keyspace_name: str) -> None:
    """Types, statics, order, dropped columns, views, cdc; and the system's own tables."""
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        session.execute(f"CREATE TYPE {keyspace_name}.addr (street text, zips frozen<set<int>>)")
        session.execute(
            f'CREATE TABLE {keyspace_name}.t (a int, b text, "C" int, s text STATIC, m map<text, int>, u addr,'
            ' gone int, PRIMARY KEY ((a, b), "C")) WITH CLUSTERING ORDER BY ("C" DESC) AND cdc = true'
        )
        session.execute(f"ALTER TABLE {keyspace_name}.t DROP gone")
        session.execute(f"CREATE TABLE {keyspace_name}.plain (k int PRIMARY KEY)")
    tables = tables_of(cluster, keyspace_name)
    table = tables["t"]
    assert [column.name for column in (*table.partition_key, *table.clustering)] == ["a", "b", "C"]
    assert table.clustering[0].descending
    assert [column.name for column in table.static] == ["s"]
    assert [(column.name, str(column.type)) for column in table.regular] == [("m", "map<text, int>"), ("u", "addr")]
    assert table.regular[1].type.fields == ("street", "zips")
    assert [dropped.column.name for dropped in table.dropped] == ["gone"]
    assert (table.cdc, tables["plain"].cdc) == (True, False)
    known = {table.id for table in cluster.definitions().tables}
    assert {table.id for table in system_tables() if table.name in ("local", "tables", "columns")} <= known


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


def test_says_what_to_look_at_when_nobody_answers() -> None:
    """Where, what, and which settings; no password."""
    port = free_port("127.0.0.1")
    with pytest.raises(ServiceError, match=rf"127\.0\.0\.1:{port}.*cluster\.contact_points") as refused:
        LiveCluster(Contact(port=port, username="u", password="secret"))  # noqa: S106 - shows that it is not shown
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(Contact(password="secret"))  # noqa: S106 - the same
