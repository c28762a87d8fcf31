"""kill -9 and standstill of Kafka and of Cassandra, under load."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from cassandra.query import SimpleStatement

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
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
from tests.integration.faults.trial import Settings, Trial, until_more
from tests.support.waiting import let_pass, until


def impatient(trial: Trial) -> Settings:
    """Settings by which a transaction may take 5 seconds."""
    settings = trial.settings
    settings["agent"]["transaction_timeout_seconds"] = 5
    return settings


def until_recovered(agent: AgentProcess) -> None:
    """Wait until it publishes, and nothing is wrong."""
    agent.until(lambda: agent.status().get("ready") is True and "service" not in agent.status()["degraded"], 120)


def crash_kafka(trial: Trial, agent: AgentProcess) -> None:
    """kill -9, and a start when the agent has noticed."""
    trial.kafka.kill()
    agent.until(lambda: "service" in agent.status().get("degraded", {}))
    trial.kafka.start()
    until_recovered(agent)


@pytest.mark.promise("agent.kafka-killed", "others.kafka-down")
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_kafka_that_crashes_again_and_again(trial: Trial) -> None:
    """The agent crashes too, with Kafka or while it is away."""
    load = trial.load(rate=100, seed=4)
    agent = trial.agent(settings=impatient(trial))
    for together in (False, True, False):
        with agent:
            until_more(agent)
            crash_kafka(trial, agent)
            until_more(agent, 50)
            trial.kafka.kill()
            if not together:
                agent.until(lambda: "service" in agent.status().get("degraded", {}))
            agent.kill()
            trial.kafka.start()
    load.end()
    with agent:
        trial.settle(agent, 600)


@pytest.mark.promise("agent.kafka-stands-still")
@pytest.mark.long
@pytest.mark.parametrize("seconds", [7, 60])
def test_a_kafka_that_stands_still(trial: Trial, seconds: float) -> None:
    """Longer than a transaction may take: it ended without us, which looks like another agent's start, and is none."""
    load = trial.load(rate=200)
    with trial.agent(settings=impatient(trial)) as agent:
        until_more(agent)
        os.kill(trial.kafka.pid, signal.SIGSTOP)
        try:
            let_pass(seconds, "the pause, whose length is what is tried")
        finally:
            os.kill(trial.kafka.pid, signal.SIGCONT)
        until_more(agent)
        load.end()
        trial.settle(agent)


@pytest.mark.promise("agent.cassandra-killed")
@pytest.mark.long
def test_a_cassandra_that_crashes(trial: Trial) -> None:
    """It replays its log and links segments again that were released: none is published twice, none taken for another
    log's, by an agent that lives through it, nor by one that starts after it; and they are deleted again."""
    load = trial.load(rate=250)
    agent = trial.agent()
    with agent:
        released = until_released(trial, agent)
        crash_cassandra(trial)
        agent.until(lambda: not released & linked(trial))
        until_more(agent)
        released = until_released(trial, agent)
        agent.kill()
        crash_cassandra(trial)
        assert released & linked(trial), "nothing was linked again: this shows nothing"
    with agent:
        until_more(agent)
        agent.until(lambda: not released & linked(trial))
        load.end()
        trial.settle(agent)
    assert load.refused, "nothing was written while it was away: this shows nothing"


@pytest.mark.promise("agent.no-index", "agent.cassandra-killed-untracked")
@pytest.mark.long
@pytest.mark.timeout(900)
def test_tracking_that_ends_right_before_a_crash(
    kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """Cassandra's default sync period of 10 s: rows are acknowledged, cdc goes off or the table is dropped, kill -9.
    Replay restores the rows, but makes no index and deletes the segment: its changes are published all the same."""
    settings = CassandraSettings(heap_mib=384, sync_period_ms=10_000)
    with LocalCassandra(tmp_path / "node", settings) as node:
        with cql(node) as session:
            create_keyspace(session, keyspace_name)
            start_here(session, node, kafka, prefix, keyspace_name)
        with AgentProcess(tmp_path, settings_for(node, kafka, prefix, keyspace_name)) as agent:
            agent.until_ready()
            for end in ("ALTER TABLE {} WITH cdc = false", "DROP TABLE {}"):
                table = end_tracking(node, keyspace_name, end)
                node.kill()
                node.start()
                topic = f"{prefix}.{table}"
                agent.until(partial(_are_published, kafka, prefix, topic), 60)
                assert in_log_order(published(kafka, prefix, topic))
            assert agent.stop() == 0, agent.words()


@pytest.mark.promise("agent.cassandra-killed-large-log")
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_cassandra_that_crashes_with_hundreds_of_segments(
    kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """320 segments in its log, all of them released: its replay links them again. The agent that lives through it, and
    one that starts after another crash, publish none twice and take none for another log's."""
    yaml = {
        "commitlog_total_space": "1024MiB",
        "memtable_allocation_type": "offheap_objects",
        "memtable_offheap_space": "1024MiB",
    }
    with LocalCassandra(tmp_path / "node", CassandraSettings(heap_mib=512, yaml=yaml)) as node:
        table = f"{keyspace_name}.t"
        with cql(node) as session:
            create_keyspace(session, keyspace_name)
            start_here(session, node, kafka, prefix, keyspace_name)
            session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v blob) WITH cdc = true")
        with AgentProcess(tmp_path, settings_for(node, kafka, prefix, keyspace_name)) as agent:
            agent.until_ready()
            with cql(node) as session:
                insert = session.prepare(f"INSERT INTO {table} (k, v) VALUES (?, ?)")
                for key in range(640):  # two fill a segment
                    session.execute(insert, (key, b"x" * 400_000))
            agent.until(lambda: agent.count("released") >= 300, 120)
            assert len(list(node.commitlog.glob("*.log"))) > 300, "flushed: this shows nothing"
            for dies in (False, True):
                if dies:
                    agent.kill()
                node.kill()
                node.start()
                if dies:
                    agent.start()
                with cql(node) as session:
                    session.execute(f"INSERT INTO {table} (k) VALUES ({1000 + dies})")
                agent.until(partial(_has_key, kafka, prefix, f"{prefix}.{table}", 1000 + dies), 120)
                agent.until(lambda: len(list(node.cdc_raw.glob("*.log"))) < 10, 120)
            assert agent.stop() == 0, agent.words()
            with cql(node) as session:  # the node itself may have lost what it had not synced when it was killed
                few = SimpleStatement(f"SELECT k FROM {table}", fetch_size=20)  # their values are read too
                kept = Counter(row.k for row in session.execute(few))
    keys = ints(published(kafka, prefix, f"{prefix}.{table}"))
    assert keys == kept
    assert {*range(600), 1000, 1001} <= kept.keys()


def end_tracking(node: LocalCassandra, keyspace: str, end: str) -> str:
    """Write 100 rows into a new table, and end it, all between two flushes of the log: no index tells of them. The
    table's name; with a sync of the log in between it is done again with another one."""
    for attempt in range(10):
        table = f"{keyspace}.{end.partition(' ')[0].lower()}{attempt}"
        with cql(node) as session:
            session.execute(f"CREATE TABLE {table} (k int PRIMARY KEY, v text) WITH cdc = true")
            session.execute(f"INSERT INTO {keyspace}.instant (k) VALUES (2)")
            before = roll_over(session, node, keyspace)  # no other table with cdc stands in the segment behind it
            until(partial(_is_flushed, node, before), "the index of a complete segment")
            for key in range(100):
                session.execute(f"INSERT INTO {table} (k, v) VALUES ({key}, 'v')")
            session.execute(end.format(table))
            if not (node.cdc_raw / f"CommitLog-7-{before + 1}_cdc.idx").exists():
                return table
    raise AssertionError("the log was flushed in between, each time: this shows nothing")


def _is_flushed(node: LocalCassandra, segment: int) -> bool:
    """Whether a segment's index says that it is complete; the agent may have released both by then."""
    log, index = (node.cdc_raw / f"CommitLog-7-{segment}{end}" for end in (".log", "_cdc.idx"))
    try:
        return not log.exists() or b"COMPLETED" in index.read_bytes()
    except FileNotFoundError:
        return False


def _has_key(kafka: LocalKafka, prefix: str, topic: str, key: int) -> bool:
    return key in ints(published(kafka, prefix, topic))


def _are_published(kafka: LocalKafka, prefix: str, topic: str) -> bool:
    return ints(published(kafka, prefix, topic)) == Counter(range(100))


def linked(trial: Trial) -> set[str]:
    """The segments in cdc_raw."""
    return {path.name for path in trial.cassandra.cdc_raw.glob("*.log")}


def until_released(trial: Trial, agent: AgentProcess) -> set[str]:
    """Wait until the agent has released another segment that the commit log still has; all such."""

    def released() -> set[str]:
        numbers = re.findall(r"released segment (\d+)", agent.log.read_text())
        there = {path.name for path in trial.cassandra.commitlog.glob("*.log")}
        return there.intersection(f"CommitLog-7-{number}.log" for number in numbers) - linked(trial)

    agent.until(lambda: bool(released()))
    return released()


def crash_cassandra(trial: Trial) -> None:
    """kill -9, and a start; returns when it is written to again."""
    trial.cassandra.kill()
    trial.cassandra.start()
    until(trial.is_answered, "Cassandra's answer to the load")
