"""Log tables by tasks on a cluster in memory: the driver's rows, by what the driver knows of each table."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import DeadLetter, MicroBatch, RecordId, Summary
from tailrace_spark.sinks.cassandra.log.sink import LogTablesSink
from tailrace_spark.sinks.cassandra.sink_base import CassandraSink, CassandraWriter, SinkOpener
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import HereOnlyError, write_here
from tailrace_spark.tasks.partition_writer import UpdateReading
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.cassandra.log.cluster import LOG, NARROWED, ORDERS, ORDERS_LOG, WIDER, Cluster, piece
from tests.unit.spark.sinks.in_tasks import LogInTasks, attempt, planned_by

PARTITION: KafkaPartition = ("t.shop.orders", 0)
_clusters: dict[int, Cluster] = {}
_numbers = count()


class _ForWorkers:
    """What a worker process sees of a cluster: it makes nothing there."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def define(self, statement: str) -> None:
        raise HereOnlyError(statement)


@dataclass(frozen=True)
class Worker(SinkOpener):
    """Of one process: one of another number has a memory of its own."""

    cluster: int = 0
    number: int = 0

    def open(self) -> LogTablesSink:
        store: Any = _ForWorkers(_clusters[self.cluster])
        return LogTablesSink(store, Cluster.settings(), self.letters)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def driver_of(cluster: Cluster, letters: Letters = LOGGED) -> LogTablesSink:
    """A driver's sink, whose tasks run in a worker of their own."""
    number = next(_numbers)
    _clusters[number] = cluster
    return cluster.sink(letters, Worker(LogTablesSink, "log", Cluster.settings(), letters, number, next(_numbers)))


def planned(sink: CassandraSink) -> CassandraWriter:
    return planned_by(CassandraWriter, sink, MicroBatch("s", 0, {PARTITION: 1 << 40}))


def elsewhere(task: CassandraWriter) -> CassandraWriter:
    """The same in another worker process."""
    opener: Any = task.opener
    return replace(task, opener=replace(opener, number=next(_numbers)))


def test_a_sink_without_an_opener_has_no_tasks() -> None:
    assert not Cluster().sink().capabilities.executors
    sink = driver_of(Cluster())
    assert sink.capabilities.executors
    assert sink.capabilities.whole_updates is sink


@pytest.mark.promise("log-tables.same-rows")
def test_tasks_and_the_driver_write_the_same_rows(cluster: Cluster) -> None:
    """Updates of several definitions of one table; and again."""
    pieces = [
        piece([LOG.insert((1,), (number,), 5, v="x") for number in range(3)], [LOG.delete((1,), (1,), 6)]),
        piece([Log(WIDER).insert((1,), (1,), 7, v="y"), Log(WIDER).insert((1,), (2,), 7)]),
    ]
    of_driver = Cluster()
    expected = write_here(of_driver.sink(), pieces)
    tasks = LogInTasks(driver_of(cluster))
    for _ in range(2):
        assert write_here(tasks, pieces) == expected
    assert cluster.rows == of_driver.rows
    assert cluster.tables == of_driver.tables


def test_a_task_makes_and_alters_no_log(cluster: Cluster) -> None:
    """Nor does it remove a watermark of a log that is missing."""
    sink = driver_of(cluster)
    for definition, rows in ((ORDERS, 1), (WIDER, 2)):
        statements, written = list(cluster.statements), len(cluster.mutations)
        change = Log(definition).insert((1,), (rows,), rows, v="x")
        with pytest.raises(HereOnlyError):
            attempt(planned(sink), PARTITION, [piece([change])])
        assert (cluster.statements, len(cluster.mutations)) == (statements, written)
        assert write_here(LogInTasks(sink), [piece([change])]) == Summary(1, 1)
        assert len(cluster.rows[ORDERS_LOG]) == rows


@pytest.mark.promise("log-tables.columns")
def test_tasks_go_by_all_definitions_that_the_driver_knows(cluster: Cluster) -> None:
    """A renamed key column is written under its newest name, and one that was dropped is left out."""
    sink = driver_of(cluster)
    [number] = NARROWED.clustering
    renamed = replace(NARROWED, clustering=(replace(number, name="number"),))
    sink.announce([(1, ORDERS), (2, WIDER), (3, NARROWED), (4, renamed)])
    statements = list(cluster.statements)
    changes = piece([LOG.insert((1,), (2,), 6, v="x")]), piece([Log(WIDER).insert((1,), (3,), 7, v="y")])
    attempt(planned(sink), PARTITION, changes)
    rows = cluster.rows[ORDERS_LOG].values()
    assert [(row.get("n"), row["number"], row["v"]) for row in rows] == [
        (None, (2).to_bytes(4, "big"), b"x"),
        (None, (3).to_bytes(4, "big"), b"y"),
    ]
    assert cluster.statements == statements


@pytest.mark.promise("sinks.dead-letters")
@pytest.mark.parametrize("by_tasks", [False, True])
def test_letters_are_kept_before_their_batch_counts(cluster: Cluster, by_tasks: bool) -> None:
    """Those of records, and of what the cluster refuses."""
    letters = MemoryLetters()
    sink, cluster.refuses = driver_of(cluster, letters), b"refused"
    record = DeadLetter(RecordId("t.shop.orders", 0, 90, b""), "no change", b"bytes")
    batch = [piece([LOG.insert((1,), (1,), 5, v="x")], [LOG.insert((1,), (2,), 5, v="refused")], letters=[record])]
    written = LogInTasks(sink) if by_tasks else sink
    with letters.shut(), pytest.raises(ServiceError, match="Kafka does not answer"):
        write_here(written, batch)
    why = "Cassandra refuses it: too large"
    assert write_here(written, batch) == Summary(1, 1, 2, refused={"shop.orders": why})
    assert sorted(letter.reason for letter in letters.all) == [why, "no change"]


@pytest.mark.promise("tasks.attempts")
def test_an_attempt_in_the_middle_of_another_leaves_the_rows_of_one(cluster: Cluster) -> None:
    sink = driver_of(cluster)
    sink.announce([(1, ORDERS)])
    updates = [[LOG.insert((key,), (number,), number, v="x") for number in range(3)] for key in range(4)]
    halves = [piece(*updates[:2]), piece(*updates[:2], *updates[2:])]

    def pieces() -> Any:
        yield halves[0]
        attempt(elsewhere(task), PARTITION, [halves[1]])
        before.update(cluster.rows[ORDERS_LOG])
        yield halves[1]

    before: dict[Any, Any] = {}
    task = planned(sink)
    task.write(PARTITION, pieces())
    assert len(before) == 12
    assert cluster.rows[ORDERS_LOG] == before


def test_tasks_show_no_secret() -> None:
    """Neither the sink's own, nor Kafka's, by which the rest of updates is read."""
    section = Cluster.settings(username="u", password="sesame")  # noqa: S106 - of nothing
    task = planned(SinkOpener(LogTablesSink, "log", section).sink())
    reading = UpdateReading(LogTablesSink.write_times, {"sasl.password": "sesame"})
    copied: tuple[CassandraWriter, UpdateReading] = pickle.loads(pickle.dumps((task, reading)))  # noqa: S301 - our own
    assert copied == (task, reading)
    assert "sesame" not in repr(copied) + str(copied)
