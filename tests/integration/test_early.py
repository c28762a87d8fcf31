"""Early mode on real nodes: changes come before Cassandra has flushed them, and are never contradicted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_schemas.progress import Progress, decode_progress
from tests.integration.agents import cql, create_keyspace, in_log_order, ints
from tests.integration.bench import Bench

EARLY = {"agent": {"early": True, "progress_seconds": 1}}
TABLE = "CREATE TABLE #.t (k int PRIMARY KEY) WITH cdc = true"


@pytest.mark.promise("agent.early")
def test_early_changes_come_once_and_their_segments_go(bench: Bench) -> None:
    """Over the ends of segments, with and without cdc data, and a kill -9."""
    bench.run(TABLE)
    with bench.agent(sections=EARLY) as agent:
        agent.until_ready()
        _write(bench, range(50))
        first = bench.roll_over()
        _write(bench, range(50, 100))
        agent.until(lambda: agent.count("changes") >= 100)
        agent.kill()
    with agent:
        agent.until_ready()
        last = bench.roll_over()
        _write(bench, range(100, 150))
        agent.until(lambda: bench.key_counts() == Counter(range(150)))
        agent.until(lambda: not any(first <= segment <= last for segment in _segments(bench.cassandra)))
        assert agent.stop() == 0
    assert in_log_order(bench.records())


@contextmanager
def slowly_flushed(kafka: LocalKafka, prefix: str, keyspace: str, place: Path) -> Iterator[Bench]:
    """A table on a node that flushes every 10 s, as by default."""
    with LocalCassandra(place / "node", CassandraSettings(sync_period_ms=10_000)) as node, cql(node) as session:
        create_keyspace(session, keyspace)
        bench = Bench(session, node, kafka, prefix, keyspace, place)
        bench.run(TABLE)
        yield bench


@pytest.mark.long
def test_early_mode_does_not_wait_for_the_flush(
    kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """Half of the changes are there before, marked; what is durable is told; and a crash of the process, whose pages
    outlive it, takes nothing back and brings nothing twice."""
    with slowly_flushed(kafka, prefix, keyspace_name, tmp_path) as bench:
        with bench.agent(sections=EARLY) as agent:
            agent.until_ready()
            for key in range(20):
                _write(bench, range(key, key + 1))
                agent.until(lambda known=key: known in bench.key_counts())  # type: ignore[misc]  # no inference of defaults
            sources = [record.change.source for record in bench.records()]
            assert sum(source is not None and source.durable is False for source in sources) > 10
            agent.until(lambda: _durable(bench))
            _write(bench, range(20, 200))
            agent.until(lambda: agent.count("changes") >= 200)
            bench.cassandra.kill()
            bench.cassandra.start()
            with cql(bench.cassandra) as bench.session:
                _write(bench, range(200, 220))
                agent.until(lambda: bench.key_counts() == Counter(range(220)), 120)
            assert agent.stop() == 0
        assert {one.change.source.durable for one in bench.records() if one.change.source} >= {False}
        assert agent.count("retracted") == 0


@pytest.mark.promise("agent.early")
@pytest.mark.long
def test_what_a_crash_of_the_machine_took_back_is_announced(
    kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """What was not flushed is on no disk then, neither for Cassandra nor for us: of every row that was published and
    is not there any more, readers were told."""
    with slowly_flushed(kafka, prefix, keyspace_name, tmp_path) as bench:
        with bench.agent(sections=EARLY) as agent:
            agent.until_ready()
            _write(bench, range(20))
            agent.until(lambda: _durable(bench) and agent.count("changes") >= 20)
            key = 20
            while not _ahead(bench):
                _write(bench, range(key, key + 1))
                agent.until(lambda known=key: known in bench.key_counts())  # type: ignore[misc]  # no inference of defaults
                key += 1
            agent.kill()
            bench.cassandra.kill()
        _forget_unflushed(bench.cassandra)
        bench.cassandra.start()
        with cql(bench.cassandra) as bench.session, agent:
            agent.until(lambda: agent.count("retracted") == 1)
            left = {row.k for row in bench.session.execute(f"SELECT k FROM {keyspace_name}.t")}
            _write(bench, range(1000, 1010))
            agent.until(lambda: bench.key_counts()[1009] == 1, 120)
            agent.stop()
        records, (told,) = bench.records(), _retractions(bench)
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


def _ahead(bench: Bench) -> bool:
    """Whether the last progress record tells of changes that are not durable yet."""
    found = _progress(bench)
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


def _retractions(bench: Bench) -> list[dict[str, Any]]:
    """The records of `.progress` that tell of them."""
    with TopicReader(bench.config, f"{bench.prefix}.progress", beginning=True) as reader:
        return [json.loads(r.value) for _, r in reader.read_to_end() if r.key and r.value and b"/retracted/" in r.key]


def _write(bench: Bench, keys: range) -> None:
    """Rows of these keys, one after the other."""
    for key in keys:
        bench.run(f"INSERT INTO #.t (k) VALUES ({key})")


def _segments(cassandra: LocalCassandra) -> list[int]:
    """Those of cdc_raw that have an index."""
    return [int(path.name.split("-")[2].split("_")[0]) for path in cassandra.cdc_raw.glob("*_cdc.idx")]


def _durable(bench: Bench) -> bool:
    """Whether the last progress record says that everything is durable."""
    found = _progress(bench)
    return bool(found) and found[-1].durable == found[-1].position and found[-1].caught_up


def _progress(bench: Bench) -> list[Progress]:
    """The progress records."""
    with TopicReader(bench.config, f"{bench.prefix}.progress", beginning=True) as reader:
        return [
            decode_progress(record.key, record.value)
            for _, record in reader.read_to_end()
            if record.key is not None and record.value is not None and b"/retracted/" not in record.key
        ]
