"""A Kafka that takes little: transactions get as small as it needs, and last longer for one large mutation."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from cassandra.query import BatchStatement, BatchType

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tests.integration.agents import in_log_order, ints
from tests.integration.faults.trial import Settings, Trial, trial_on
from tests.services.quotas import producer_quota

BUFFER = 32
"""MiB: agent.buffer_mebibytes."""
ROOM = 24
"""MiB: a segment's pages, a piece of the mutation as messages, and librdkafka's own copies on their way out."""
MARKS = 1
"""Changes of a trial's own, of the table `marks`: `ddl` writes one."""
WIDE = "CREATE TABLE #.wide (k int PRIMARY KEY, v blob) WITH cdc = true"
MANY = "CREATE TABLE #.many (k int, c int, v int, PRIMARY KEY (k, c)) WITH cdc = true"

MANY_WIDE = "CREATE TABLE #.many_wide (k int, c int, v blob, PRIMARY KEY (k, c)) WITH cdc = true"


def throttled(trial: Trial) -> Settings:
    """Settings of an agent with a client id of its own, which quotas name."""
    settings = trial.settings
    settings["kafka"]["client.id"] = trial.prefix
    return settings


def filling(settings: Settings) -> Settings:
    """With transactions that are old, and have many changes, before they are committed: bytes alone limit them."""
    settings["agent"] |= {"transaction_milliseconds": 1000, "transaction_changes": 1000}
    return settings


@contextmanager
def quota(trial: Trial, bytes_per_second: int) -> Iterator[None]:
    """The agent's producers may send so many bytes a second."""
    with producer_quota(trial.kafka, trial.prefix, bytes_per_second, trial.place):
        yield


def write_wide(trial: Trial, rows: int, size: int) -> None:
    """Rows of so many bytes that nothing compresses, under the keys from 0 on."""
    insert = trial.session.prepare(f"INSERT INTO {trial.keyspace}.wide (k, v) VALUES (?, ?)")
    for key in range(rows):
        trial.session.execute(insert, (key, Random(key).randbytes(size)))


def write_batch(trial: Trial, rows: int) -> None:
    """One mutation: so many rows of one partition in one batch."""
    # As one text: a batch of prepared statements has 65,535 at most.
    inserts = "".join(f"INSERT INTO {trial.keyspace}.many(k,c,v)VALUES(1,{number},{number});" for number in range(rows))
    trial.session.execute(f"BEGIN UNLOGGED BATCH {inserts} APPLY BATCH", timeout=120)


def write_wide_batch(trial: Trial, rows: int, size: int) -> None:
    """One mutation: so many rows of one partition, each of so many bytes."""
    insert = trial.session.prepare(f"INSERT INTO {trial.keyspace}.many_wide (k, c, v) VALUES (1, ?, ?)")
    batch = BatchStatement(BatchType.UNLOGGED)
    for number in range(rows):
        batch.add(insert, (number, Random(number).randbytes(size)))
    trial.session.execute(batch, timeout=60)


@pytest.mark.promise("agent.slow-kafka")
def test_a_backlog_at_a_slow_kafka(trial: Trial) -> None:
    """More than gets through in a transaction's time, at once: health says that Kafka is slow, how slow, and which
    settings help; all of it arrives, once."""
    trial.ddl(WIDE)
    # Kafka lets eleven seconds' worth through at once; what comes behind that shows the quota.
    write_wide(trial, 60, 50_000)
    settings = filling(throttled(trial))
    settings["agent"]["transaction_timeout_seconds"] = 4
    with quota(trial, 100_000), trial.agent(settings=settings) as agent:
        agent.until(lambda: "slow" in agent.status().get("degraded", {}))
        words = agent.status()["degraded"]["slow"]
        agent.until(lambda: agent.count("changes") >= 60 + MARKS, 120)
        committed = map(int, re.findall(r"committed (\d+) changes", agent.log.read_text()))
        assert max(committed) < 60, "one transaction had all of them"
        assert "bytes a second" in words
        assert "segments wait" in words
        assert "producer_byte_rate" in words
        assert "agent.transaction_timeout_seconds" in words
        assert 100_000 / 3 < agent.status()["gauges"]["kafka_bytes_per_second"] < 100_000 * 3
        assert agent.status()["ready"]
        assert agent.stop() == 0, agent.words()
    assert ints(trial.records("wide")) == Counter(range(60))
    assert in_log_order(trial.records("wide"))


@contextmanager
def large_segments(kafka: LocalKafka, prefix: str, keyspace: str, place: Path) -> Iterator[Trial]:
    """A trial on a Cassandra of its own, with segments of 32 MiB, Cassandra's default."""
    large = {
        # A node that is busy reads the text of 100,000 statements for longer than its own limits.
        "native_transport_timeout": "120s",
        "write_request_timeout": "60s",
        "batch_size_warn_threshold": "15MiB",
        "batch_size_fail_threshold": "16MiB",
    }
    settings = CassandraSettings(segment_mib=32, heap_mib=1024, yaml=large)
    with (
        LocalCassandra(place / "cassandra", settings) as cassandra,
        trial_on(cassandra, kafka, prefix, keyspace, place) as trial,
    ):
        yield trial


@pytest.mark.promise("agent.large-mutation")
@pytest.mark.long
@pytest.mark.timeout(600)
def test_one_batch_of_100_000_rows(
    kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One mutation, which needs more than a transaction's usual time, at 1 MB a second: its transaction may last
    longer, it is sent while it is decoded, and the next transaction is as short as ever."""
    with large_segments(kafka, prefix, keyspace_name, tmp_path) as trial:
        trial.ddl(MANY)
        with quota(trial, 1_000_000), trial.agent(settings=throttled(trial)) as agent:
            agent.until_ready()
            ready = agent.most_memory
            write_batch(trial, 100_000)
            began = time.monotonic()
            agent.until(lambda: agent.count("changes") >= 100_000 + MARKS, 150)
            seconds, peak = time.monotonic() - began, agent.most_memory
            agent.until(lambda: agent.status()["gauges"]["transaction_seconds"] == 10)
            assert agent.stop() == 0, agent.words()
        records = trial.records("many")
    with capsys.disabled():
        sys.stdout.write(f"\n100,000 rows in one batch at 1 MB/s: {seconds:.0f} s, {ready} -> {peak} MiB\n")
    assert len(records) == 100_000
    assert in_log_order(records)
    assert peak - ready < BUFFER + ROOM, f"{ready} MiB when it was ready, {peak} MiB at most"


@pytest.mark.promise("agent.large-mutation", "agent.stop-inside-large-mutation")
@pytest.mark.long
@pytest.mark.timeout(900)
def test_mutations_of_the_largest_size(
    kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """15 MB each: one of many rows, inside of which the agent is told to stop, and ends without a trace of it; then, at
    500 kB a second, that one again and one of a single row, behind which others follow."""
    with large_segments(kafka, prefix, keyspace_name, tmp_path) as trial:
        trial.ddl(MANY_WIDE, WIDE)
        with quota(trial, 100_000), trial.agent(settings=throttled(trial)) as agent:
            agent.until_ready()
            before = trial.appended()
            write_wide_batch(trial, 150, 100_000)
            agent.until(lambda: trial.appended() >= before + 10)
            assert agent.stop() == 0, agent.words()
        assert trial.records("many_wide") == []
        with quota(trial, 500_000):
            began = time.monotonic()
            with trial.agent(settings=throttled(trial)) as agent:
                agent.until(lambda: agent.count("changes") >= 150, 180)
                write_wide(trial, 1, 15_000_000)
                write_wide(trial, 20, 100)
                last = trial.mark()
                agent.until(lambda: trial.is_published(last), 180)
                seconds, peak = time.monotonic() - began, agent.most_memory
                assert agent.stop() == 0, agent.words()
        assert in_log_order(trial.records("many_wide"))
        assert len(trial.records("many_wide")) == 150
        assert ints(trial.records("wide")) == Counter({0: 2, **dict.fromkeys(range(1, 20), 1)})
    with capsys.disabled():
        sys.stdout.write(f"\n15 MB at 500 kB/s: both in {seconds:.0f} s, {peak} MiB\n")
