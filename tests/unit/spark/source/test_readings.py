"""Tasks are given the places of a reading, and their driver those of Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.files.sink import FilesSink
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.source.readings import EVERY, of_readings
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, Topic, delivered_by, place_of
from tests.unit.spark.sinks.files.stores import local
from tests.unit.spark.sinks.in_tasks import LogInTasks


def piece(topic: str) -> Piece:
    log = Log(PLAIN)
    return Topic(topic).piece(*(log.insert((number,), (), number, v="x") for number in range(4)))


@pytest.mark.promise("sinks.read-again")
def test_tasks_write_each_reading_once(tmp_path: Path) -> None:
    """A topic may have a reading of its own, and rows of a snapshot have places that none had before."""
    stored, read = local(tmp_path), [piece("t.shop.plain"), piece("t.shop.other"), piece("t.shop.plain@snapshot")]
    for readings in ({}, {EVERY: "one"}, {EVERY: "one"}, {EVERY: "one", "t.shop.plain": "of it"}):
        with closing(FilesSink(stored.outlet())) as sink:
            LogInTasks(of_readings(sink, readings)).write(read)
    topics = ["t.shop.plain", "t.shop.other"]
    expected = {(name, *place[1:]) for place in delivered_by(read[0]) for name in [
        *topics, *(f"{topic}@one" for topic in topics), "t.shop.plain@of it", "t.shop.plain@snapshot",
    ]}  # fmt: skip
    places = [place_of(record) for record in stored.records()]
    assert sorted(places) == sorted(expected)


@dataclass
class Planner:
    """A sink that says what it was given to plan and to commit, and writes nothing."""

    ends: list[dict[KafkaPartition, int]]

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(ordered=True, tasks=self)

    def write(self, pieces: Iterable[Piece]) -> Summary:
        return Summary(len(list(pieces)))

    def close(self) -> None: ...

    def fence(self, stream: str) -> None: ...

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> Planner.Task:
        del definitions
        self.ends.append(dict(batch.ends))
        return Planner.Task()

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        assert {result.partition for result in results} == batch.ends.keys()
        return Summary()

    class Task:
        def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
            return PartitionResult(partition, Summary(len(list(pieces))))


def test_a_driver_knows_its_own_partitions() -> None:
    planner, batch = Planner([]), TaskBatch("s", 0, {("t", 1): 5, ("u", 0): 6})
    tasks = of_readings(planner, {"t": "x"}).capabilities.tasks
    assert tasks is not None
    task = tasks.plan(batch, [])
    results = [task.write(partition, []) for partition in batch.ends]
    assert [result.partition for result in results] == list(batch.ends)
    tasks.commit(batch, results)
    assert planner.ends == [{("t@x", 1): 5, ("u", 0): 6}]
