"""Early mode on real nodes: changes come before Cassandra has flushed them, and are never contradicted."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from pathlib import Path

import pytest
from cassandra.cluster import Session

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_schemas.progress import decode_progress
from tests.integration.agents import (
    AgentProcess,
    cql,
    create_keyspace,
    in_log_order,
    ints,
    published,
    roll_over,
    settings_for,
    start_here,
)


def early(cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace: str, place: Path) -> AgentProcess:
    """An agent in early mode, not started."""
    settings = settings_for(cassandra, kafka, prefix, keyspace)
    settings["agent"] |= {"early": True, "progress_seconds": 1}
    return AgentProcess(place, settings)


def test_early_changes_come_once_and_their_segments_go(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """Over the ends of segments, with and without cdc data, and a kill -9."""
    topic = f"{prefix}.{keyspace_name}.t"
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        start_here(session, cassandra, kafka, prefix, keyspace_name)
        session.execute(f"CREATE TABLE {keyspace_name}.t (k int PRIMARY KEY) WITH cdc = true")
        with early(cassandra, kafka, prefix, keyspace_name, tmp_path) as agent:
            agent.until_ready()
            _write(session, keyspace_name, range(50))
            first = roll_over(session, cassandra, keyspace_name)
            _write(session, keyspace_name, range(50, 100))
            agent.until(lambda: agent.count("changes") >= 100)
            agent.kill()
        with agent:
            agent.until_ready()
            last = roll_over(session, cassandra, keyspace_name)
            _write(session, keyspace_name, range(100, 150))
            agent.until(lambda: ints(published(kafka, prefix, topic)) == Counter(range(150)))
            agent.until(lambda: not any(first <= segment <= last for segment in _segments(cassandra)))
            assert agent.stop() == 0
    assert in_log_order(published(kafka, prefix, topic))


@pytest.mark.long
def test_early_mode_does_not_wait_for_the_flush(
    kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """A node that flushes every 10 s, as by default: half of the changes are there within a fifth of that, marked; what
    is durable is told; and a crash of the process, whose pages outlive it, takes nothing back and brings nothing twice.
    """
    topic = f"{prefix}.{keyspace_name}.t"
    with LocalCassandra(tmp_path / "node", CassandraSettings(sync_period_ms=10_000)) as node, cql(node) as session:
        create_keyspace(session, keyspace_name)
        session.execute(f"CREATE TABLE {keyspace_name}.t (k int PRIMARY KEY) WITH cdc = true")
        with early(node, kafka, prefix, keyspace_name, tmp_path) as agent:
            agent.until_ready()
            took = [_latency(session, keyspace_name, kafka, prefix, topic, key) for key in range(20)]
            assert statistics.median(took[1:]) < 2, took
            agent.until(lambda: _durable(kafka, prefix))
            _write(session, keyspace_name, range(20, 200))
            agent.until(lambda: agent.count("changes") >= 200)
            node.kill()
            node.start()
            with cql(node) as again:
                _write(again, keyspace_name, range(200, 220))
                agent.until(lambda: ints(published(kafka, prefix, topic)) == Counter(range(220)), 120)
            assert agent.stop() == 0
    records = published(kafka, prefix, topic)
    assert {one.change.source.durable for one in records if one.change.source} >= {False}
    assert agent.count("retracted") == 0


def _write(session: Session, keyspace: str, keys: range) -> None:
    """Rows of these keys."""
    for key in keys:
        session.execute(f"INSERT INTO {keyspace}.t (k) VALUES ({key})")


def _segments(cassandra: LocalCassandra) -> list[int]:
    """Those of cdc_raw that have an index."""
    return [int(path.name.split("-")[2].split("_")[0]) for path in cassandra.cdc_raw.glob("*_cdc.idx")]


def _latency(session: Session, keyspace: str, kafka: LocalKafka, prefix: str, topic: str, key: int) -> float:
    """Seconds from a write to when a reader has it."""
    began = time.monotonic()
    session.execute(f"INSERT INTO {keyspace}.t (k) VALUES ({key})")
    while ints(published(kafka, prefix, topic))[key] == 0:
        assert time.monotonic() - began < 60
    return time.monotonic() - began


def _durable(kafka: LocalKafka, prefix: str) -> bool:
    """Whether the last progress record says that everything is durable."""
    config: dict[str, bool | int | float | str] = {"bootstrap.servers": kafka.bootstrap}
    with TopicReader(config, f"{prefix}.progress", beginning=True) as reader:
        found = [
            decode_progress(record.key, record.value)
            for _, record in reader.read_to_end()
            if record.key is not None and record.value is not None
        ]
    return bool(found) and found[-1].durable == found[-1].position and found[-1].caught_up
