"""The mirror on a real Cassandra: several agents at once, and what ScyllaDB's documentation has readers ask."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cassandra.cluster import Session

from tailrace.cluster import LiveCluster
from tailrace.local import CassandraSettings, LocalCassandra
from tailrace.topology.mirror import CqlStore, Mirror
from tailrace.topology.mirror_plan import IdForm, MirrorOptions, MirrorTable
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.ring import Node, Ring
from tests.integration.agents import contact_of_node, cql
from tests.support.waiting import until
from tests.unit.topology.mirror_memory import published

BEGIN = 1_760_000_000_484
APART = 65_000
DAY = 86_400_000
AGENTS = 2


@pytest.fixture
def generations(cassandra: LocalCassandra) -> tuple[PublishedGeneration, ...]:
    """Three, of rings in the session's datacenter; the second needs several writes."""
    with closing(LiveCluster(contact_of_node(cassandra))) as live:
        (node,) = live.ring().nodes
    small = Ring((Node(node.host, node.datacenter, (-(2**62), 5, 2**62)),))
    large = Ring((Node(node.host, node.datacenter, tuple(range(-(2**60), 2**60, 2**49))),))
    return published(small, large, small, begin=BEGIN, apart=APART, streams=2)


@pytest.fixture
def clusters(cassandra: LocalCassandra) -> Iterator[list[LiveCluster]]:
    """Several agents' connections."""
    with ExitStack() as opened:
        yield [opened.enter_context(closing(LiveCluster(contact_of_node(cassandra)))) for _ in range(AGENTS)]


@pytest.fixture
def session(cassandra: LocalCassandra) -> Iterator[Session]:
    """CQL."""
    with cql(cassandra) as session:
        yield session


def as_cql(milliseconds: int) -> str:
    """A time as ScyllaDB's documentation writes it in WHERE."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "+0000"


@pytest.mark.promise("mirror.crash")
def test_agents_that_mirror_together_and_the_readers_queries(
    clusters: list[LiveCluster], session: Session, generations: tuple[PublishedGeneration, ...], keyspace_name: str
) -> None:
    together = threading.Barrier(AGENTS)
    options = MirrorOptions(v1=True, keep_ms=DAY)

    def run(cluster: LiveCluster) -> None:
        together.wait(60)
        Mirror(CqlStore(cluster, keyspace_name), options).update(generations, BEGIN + 2 * APART)

    with ThreadPoolExecutor(AGENTS) as pool:
        list(pool.map(run, clusters))

    query = f"SELECT time FROM {keyspace_name}.cdc_generation_timestamps WHERE key = 'timestamps'"
    first, second, third = (one.timestamp for one in generations)
    found = [round(row.time.replace(tzinfo=UTC).timestamp() * 1000) for row in session.execute(query)]
    assert found == [third, second, first]

    for one in generations:
        generation = one.unpack().generation
        query = f"SELECT * FROM {keyspace_name}.cdc_streams_descriptions_v2 WHERE time = '{as_cql(one.timestamp)}'"
        rows = list(session.execute(query))
        assert [row.range_end for row in rows] == [entry.token_range_end for entry in generation.entries]
        for row, entry in zip(rows, generation.entries, strict=True):
            assert set(row.streams) == {stream.value for stream in entry.streams}
        query = f"SELECT streams FROM {keyspace_name}.cdc_streams_descriptions WHERE time = '{as_cql(one.timestamp)}'"
        (v1,) = session.execute(query)
        assert set(v1.streams) == {stream.value for stream in generation.streams()}
        query = f"SELECT * FROM {keyspace_name}.cdc_generation_descriptions WHERE time = '{as_cql(one.timestamp)}'"
        (described,) = session.execute(query)
        assert [(end, list(streams), ignore_msb) for end, streams, ignore_msb in described.description] == [
            (entry.token_range_end, [stream.value for stream in entry.streams], entry.sharding_ignore_msb)
            for entry in generation.entries
        ]

    store = CqlStore(clusters[0], keyspace_name)
    assert store.local() == {"cdc_local": third, "rewritten": None}
    mirror = Mirror(store, options, create=False)
    mirror.update(generations, third)
    assert store.expirations(MirrorTable.TIMESTAMPS) == {first: second, second: third, third: None}
    assert store.expirations(MirrorTable.STREAMS_V1) == {first: second, second: third, third: None}
    mirror.update(generations, second + DAY)
    assert sorted(store.partitions()) == [second, third]
    assert store.expirations(MirrorTable.DESCRIPTIONS) == {second: third, third: None}
    assert mirror.update(generations, second + DAY) == 0


@pytest.mark.promise("mirror.crash")
@pytest.mark.long
@pytest.mark.parametrize("release", ["4.0", "6.0"])
@pytest.mark.usefixtures("as_processes")
def test_agents_on_two_nodes_make_the_same_tables(tmp_path: Path, release: str) -> None:
    """Each makes each table on its own node at the same moment, as agents do that find nothing."""
    small = CassandraSettings(release=release, heap_mib=384, ring_delay_ms=5000)
    with ExitStack() as stack:
        one = stack.enter_context(LocalCassandra(tmp_path / "one", small))
        second = replace(small, address="127.0.0.2", storage_port=one.storage_port, seeds=(one.address,))
        two = stack.enter_context(LocalCassandra(tmp_path / "two", second))
        live = [stack.enter_context(closing(LiveCluster(contact_of_node(node)))) for node in (one, two)]
        until(lambda: len(live[0].ring().nodes) == len(live[1].ring().nodes) == len(live), "a ring of all nodes", 120)
        generations = published(live[0].ring(), live[0].ring(), begin=BEGIN, apart=APART)
        together = threading.Barrier(len(live))
        mirrors = [Mirror(CqlStore(cluster, "mirror"), MirrorOptions(v1=True)) for cluster in live]

        def is_done(mirror: Mirror) -> bool:
            """Tried again as the agent's thread does: the other node's schema arrives meanwhile."""
            try:
                mirror.update(generations, BEGIN)
            except ServiceError:
                return False
            return True

        mirrors[0].store.create_keyspace({live[0].local().datacenter: 2})
        until(lambda: live[0].schema_version() == live[1].schema_version(), "one version of the schema")

        def run(mirror: Mirror) -> bool:
            for table in MirrorTable:
                together.wait(60)
                mirror.store.create_table(table, IdForm.BLOB)
            return until(lambda: is_done(mirror), "the mirror's tables", 120)

        with ThreadPoolExecutor(len(live)) as pool:
            assert list(pool.map(run, mirrors)) == [True, True]
        ids = "SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = 'mirror'"
        until(lambda: live[0].schema_version() == live[1].schema_version(), "one version of the schema")
        first, other = ({row["table_name"]: row["id"] for row in cluster.execute(ids)} for cluster in live)
        assert first == other
        assert set(first) == set(MirrorTable)
        for mirror in mirrors:
            assert mirror.update(generations, BEGIN) == 0
            for generation in generations:
                ends = [entry.token_range_end for entry in generation.unpack().generation.entries]
                assert list(mirror.store.range_ends(generation.timestamp)) == ends
