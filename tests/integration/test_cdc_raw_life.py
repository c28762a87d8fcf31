"""cdc_raw of a real node as it fills: spooled, freed, deleted by Cassandra itself, linked again; nothing silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tests.integration.agents import (
    cql,
    in_log_order,
    ints,
)
from tests.integration.cdc_raw import LIMIT, ROWS, Bench
from tests.support.waiting import until

RECOUNT = {"cdc_free_space_check_interval": "20ms"}
SMALL = CassandraSettings(cdc_total_mib=LIMIT, heap_mib=384, yaml=RECOUNT)
NEVER_BLOCKS = replace(SMALL, yaml={**RECOUNT, "cdc_block_writes": False})


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the one node of these tests, which is started anew with other settings."""
    return tmp_path_factory.mktemp("full") / "cassandra"


@pytest.fixture(scope="module")
def node(directory: Path) -> Iterator[LocalCassandra]:
    """One that refuses writes when cdc_raw is full; for all tests but the last."""
    with LocalCassandra(directory, SMALL) as node:
        yield node


@pytest.fixture
def bench(node: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path) -> Bench:
    """Of that node."""
    bench = Bench(node, kafka, prefix, keyspace_name, tmp_path)
    bench.begin()
    return bench


@pytest.mark.promise("agent.kafka-away")
@pytest.mark.long
def test_a_kafka_outage_does_not_stop_writes(bench: Bench) -> None:
    """Twice as much as cdc_raw takes is written while Kafka is down: spooled, and published once when it is back."""
    total = 2 * LIMIT * ROWS
    with bench.agent() as agent, cql(bench.node) as session:
        agent.until_ready()
        bench.kafka.kill()
        try:
            bench.write_as_room_is_made(session, range(total))
            room = agent.status()["cdc_raw"]
            assert room["limit_bytes"] == LIMIT << 20
            assert room["used_bytes"] < LIMIT << 20
            assert room["spooled_bytes"] >= LIMIT << 20
            assert agent.count("spooled") >= LIMIT
        finally:
            bench.kafka.start()
        agent.until(lambda: agent.count("changes") >= total, 120)
        agent.until(lambda: agent.status()["cdc_raw"]["spooled_bytes"] == 0)
        assert agent.stop() == 0, agent.words()
    records = bench.records()
    assert ints(records) == Counter(range(total))
    assert in_log_order(records)


@pytest.mark.promise("agent.full-cdc-raw")
def test_a_full_cdc_raw_is_freed_and_writes_go_on(bench: Bench) -> None:
    """No agent, until Cassandra refuses; then one that frees as it publishes, and tells how full it is."""
    with cql(bench.node) as session:
        attempted = range(2 * LIMIT * ROWS)
        taken = bench.write(session, attempted)
        assert len(taken) < len(attempted), "Cassandra refused nothing: this shows nothing"
        with bench.agent(on_pressure="hold") as agent:
            agent.until_ready()
            more = range(10_000, 10_050)
            until(lambda: bench.write(session, more) == list(more), "writes that are taken again")
            agent.until(lambda: {*taken, *more} <= ints(bench.records()).keys())
            agent.until(lambda: agent.status()["cdc_raw"]["used_bytes"] < (LIMIT << 20) // 2)
            assert "headroom" not in agent.status()["degraded"]
            assert agent.stop() == 0, agent.words()
    assert in_log_order(bench.records())
    assert not bench.spool.exists()


@pytest.mark.promise("agent.vanished-segments")
@pytest.mark.long
def test_segments_that_cassandra_deleted_unread_are_reported_once(
    node: LocalCassandra, directory: Path, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """The node starts anew with cdc_block_writes: false; twice as much as cdc_raw takes is written, and no agent runs:
    exit code 4, an event for each gap with its exact ends, a metric; the next agent has nothing to tell."""
    node.stop()
    with LocalCassandra(directory, NEVER_BLOCKS) as losing:
        bench = Bench(losing, kafka, prefix, keyspace_name, tmp_path)
        bench.begin()
        _lose_and_report(bench)


def _lose_and_report(bench: Bench) -> None:
    with cql(bench.node) as session:
        with bench.agent() as agent:
            agent.until_ready()
            assert len(bench.write(session, range(100))) == 100
            agent.until(lambda: agent.count("changes") >= 100)
            before = agent.status()["committed"]
            assert agent.stop() == 0, agent.words()
        assert ints(bench.records()) == Counter(range(100))
        total = 2 * LIMIT * ROWS
        assert len(bench.write(session, range(100, total))) == total - 100
    first = min(bench.logs())
    assert first > before["segment"] + 1, "Cassandra deleted nothing: this shows nothing"
    with bench.agent() as agent:
        agent.until(lambda: total - 1 in ints(bench.records()))
        agent.until(lambda: agent.count("lost") == 1 and agent.count("unknown") == 1)
        assert any(cause.startswith("loss of") for cause in agent.status()["degraded"])
        assert agent.stop() == 4, agent.words()
    losses = bench.losses()
    lost, unknown = (losses[f"1/{segment}"] for segment in (before["segment"], before["segment"] + 1))
    assert (lost["kind"], lost["first"]) == ("lost", before)
    assert (unknown["kind"], unknown["until"]) == ("unknown", {"epoch": 1, "segment": first, "offset": 0})
    there = ints(bench.records())
    unpublished = set(range(total)) - there.keys()
    assert unpublished
    assert min(unpublished) >= 100, (
        f"{sorted(unpublished)[:9]}; read again: {set(range(100)) - ints(bench.records()).keys()}"
    )
    assert set(there.values()) == {1}
    with bench.agent() as agent, cql(bench.node) as session:
        bench.write(session, range(total, total + 1))
        agent.until(lambda: agent.count("changes") >= 1)
        assert agent.stop() == 0, agent.words()
    assert bench.losses() == losses
