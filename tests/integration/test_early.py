"""Early mode on real nodes: changes come before Cassandra has flushed them, and are never contradicted."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import Session

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_schemas.progress import Progress, decode_progress
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


@pytest.mark.promise("agent.early")
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
    """A node that flushes every 10 s, as by default: half of the changes are there before, marked; what
    is durable is told; and a crash of the process, whose pages outlive it, takes nothing back and brings nothing twice.
    """
    topic = f"{prefix}.{keyspace_name}.t"
    with LocalCassandra(tmp_path / "node", CassandraSettings(sync_period_ms=10_000)) as node, cql(node) as session:
        create_keyspace(session, keyspace_name)
        session.execute(f"CREATE TABLE {keyspace_name}.t (k int PRIMARY KEY) WITH cdc = true")
        with early(node, kafka, prefix, keyspace_name, tmp_path) as agent:
            agent.until_ready()
            for key in range(20):
                _write(session, keyspace_name, range(key, key + 1))
                agent.until(partial(_has, kafka, prefix, topic, key))
            sources = [record.change.source for record in published(kafka, prefix, topic)]
            assert sum(source is not None and source.durable is False for source in sources) > 10
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


@pytest.mark.promise("agent.early")
@pytest.mark.long
def test_what_a_crash_of_the_machine_took_back_is_announced(
    kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """What was not flushed is on no disk then, neither for Cassandra nor for us: of every row that was published and
    is not there any more, readers were told."""
    topic = f"{prefix}.{keyspace_name}.t"
    with LocalCassandra(tmp_path / "node", CassandraSettings(sync_period_ms=10_000)) as node:
        with cql(node) as session:
            create_keyspace(session, keyspace_name)
            session.execute(f"CREATE TABLE {keyspace_name}.t (k int PRIMARY KEY) WITH cdc = true")
            with early(node, kafka, prefix, keyspace_name, tmp_path) as agent:
                agent.until_ready()
                _write(session, keyspace_name, range(20))
                agent.until(lambda: _durable(kafka, prefix) and agent.count("changes") >= 20)
                key = 20
                while not _ahead(kafka, prefix):
                    _write(session, keyspace_name, range(key, key + 1))
                    agent.until(lambda known=key: ints(published(kafka, prefix, topic))[known] == 1)  # type: ignore[misc]  # no inference of defaults
                    key += 1
                agent.kill()
                node.kill()
        _forget_unflushed(node)
        node.start()
        with cql(node) as session, agent:
            agent.until(lambda: agent.count("retracted") == 1)
            left = {row.k for row in session.execute(f"SELECT k FROM {keyspace_name}.t")}
            _write(session, keyspace_name, range(1000, 1010))
            agent.until(lambda: ints(published(kafka, prefix, topic))[1009] == 1, 120)
            agent.stop()
    records = published(kafka, prefix, topic)
    (told,) = _retractions(kafka, prefix)
    sources = [(ints([one]), one.change.source) for one in records]
    retracted = {
        next(iter(keys))
        for keys, source in sources
        if source is not None
        and (told["first"]["segment"], told["first"]["offset"]) < (source.position.segment, source.position.offset)
        and (source.position.segment, source.position.offset) <= (told["until"]["segment"], told["until"]["offset"])
    }
    assert ints(records) == Counter((*range(key), *range(1000, 1010)))
    assert retracted == set(range(key)) - left
    assert retracted


def _ahead(kafka: LocalKafka, prefix: str) -> bool:
    """Whether the last progress record tells of changes that are not durable yet."""
    found = _progress(kafka, prefix)
    return bool(found) and found[-1].durable != found[-1].position


def _forget_unflushed(node: LocalCassandra) -> None:
    """What a disk has when the power fails: segments up to where they were flushed, as their indexes say."""
    for log in node.cdc_raw.glob("CommitLog-*.log"):
        index = node.cdc_raw / f"{log.stem}_cdc.idx"
        if index.exists():
            flushed = int(index.read_text().split()[0])
            with log.open("r+b") as file:
                file.seek(flushed)
                file.write(bytes(log.stat().st_size - flushed))


def _retractions(kafka: LocalKafka, prefix: str) -> list[dict[str, Any]]:
    """The records of `.progress` that tell of them."""
    with TopicReader({"bootstrap.servers": kafka.bootstrap}, f"{prefix}.progress", beginning=True) as reader:
        return [json.loads(r.value) for _, r in reader.read_to_end() if r.key and r.value and b"/retracted/" in r.key]


def _write(session: Session, keyspace: str, keys: range) -> None:
    """Rows of these keys."""
    for key in keys:
        session.execute(f"INSERT INTO {keyspace}.t (k) VALUES ({key})")


def _segments(cassandra: LocalCassandra) -> list[int]:
    """Those of cdc_raw that have an index."""
    return [int(path.name.split("-")[2].split("_")[0]) for path in cassandra.cdc_raw.glob("*_cdc.idx")]


def _has(kafka: LocalKafka, prefix: str, topic: str, key: int) -> bool:
    """Whether a reader has the change of a key."""
    return key in ints(published(kafka, prefix, topic))


def _durable(kafka: LocalKafka, prefix: str) -> bool:
    """Whether the last progress record says that everything is durable."""
    found = _progress(kafka, prefix)
    return bool(found) and found[-1].durable == found[-1].position and found[-1].caught_up


def _progress(kafka: LocalKafka, prefix: str) -> list[Progress]:
    """The progress records."""
    config: dict[str, bool | int | float | str] = {"bootstrap.servers": kafka.bootstrap}
    with TopicReader(config, f"{prefix}.progress", beginning=True) as reader:
        return [
            decode_progress(record.key, record.value)
            for _, record in reader.read_to_end()
            if record.key is not None and record.value is not None and b"/retracted/" not in record.key
        ]
