"""Batches by tasks, run in this process: the stream's id, fences, and what of the definitions tasks and sinks see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pyspark.errors import PythonException

from tailrace_common.topics.schemas import SchemaReader
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.job.checkpoint_files import MemoryFiles
from tailrace_spark.job.executor_batches import ExecutorBatches, MissingPackagesError, RecordSource
from tailrace_spark.job.notes import decode_note
from tailrace_spark.sinks.protocol import PartitionTask
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.job import TaskRunner
from tailrace_spark.tasks.outcome import Outcome, RecordCounts, Unprepared, Written
from tests.unit.spark.sinks.planned import Planned
from tests.unit.spark.tasks.announced import entries

FIRST, SECOND = ("t.ks.t", 0), ("t.ks.t", 1)
FRAME, TABLE = cast(Any, "the records"), cast(StreamTable, "the generations")  # which the runner alone looks at


@dataclass
class InProcess:
    """As TaskRunner; without Spark. `lacks` are schemas that the first run's tasks lack."""

    partitions_of_batch: tuple[KafkaPartition, ...] = (FIRST, SECOND)
    lacks: frozenset[bytes] = frozenset()
    error: Exception | None = None
    counts: list[Mapping[str, int | None]] = field(default_factory=list)

    def run(
        self,
        frame: object,
        task: PartitionTask,
        table: object,
        schemas: Mapping[bytes, SchemaEntry],
        partitions: Mapping[str, int | None],
        written: frozenset[KafkaPartition],
        filters: object = None,
        read_back: object = None,
    ) -> list[Outcome]:
        assert (frame, table, filters, read_back) == (FRAME, TABLE, None, None)
        assert schemas
        assert task is not None
        self.counts.append(partitions)
        if self.error is not None:
            raise self.error
        left = [partition for partition in self.partitions_of_batch if partition not in written]
        if self.lacks and len(self.counts) == 1:
            return [Unprepared(partition, self.lacks) for partition in left]
        return [Written(PartitionResult(partition, Summary(1, 1)), RecordCounts(1)) for partition in left]

    @property
    def runner(self) -> TaskRunner:
        return cast(TaskRunner, self)


def batches(sink: Planned, runner: InProcess, files: MemoryFiles | None = None) -> ExecutorBatches:
    schemas = cast(SchemaReader, entries())
    return ExecutorBatches(sink, runner.runner, schemas, None, files or MemoryFiles())


def test_the_streams_id_is_in_the_checkpoint_before_it_is_in_the_sink_and_stays() -> None:
    files = MemoryFiles()

    class Looking(Planned):
        def fence(self, stream: str) -> None:
            assert decode_note(files.read("tasks.json") or "", "tasks.json")["stream"] == stream
            super().fence(stream)

    sink = Looking()
    executors = batches(sink, InProcess(), files)
    executors.fence()
    executors.write(FRAME, 3, {FIRST: 5, SECOND: 7}, TABLE)
    batches(sink, InProcess(), files).fence()
    [stream] = set(sink.fenced)
    assert sink.plans == [(TaskBatch(stream, 3, {FIRST: 5, SECOND: 7}), [])]


@pytest.mark.promise("tasks.fence")
def test_tasks_are_fenced_once_before_the_driver_writes_and_again_behind_each_batch_of_theirs() -> None:
    """Also where the batch came to nothing, and before anything is known: an earlier driver may have left some."""
    sink, runner = Planned(), InProcess()
    executors = batches(sink, runner)
    for _ in range(2):
        executors.fence()
        assert len(sink.fenced) == 1
    executors.write(FRAME, 0, {FIRST: 5}, TABLE)
    executors.fence()
    runner.error = ServiceError("down")
    with pytest.raises(ServiceError):
        executors.write(FRAME, 1, {FIRST: 5}, TABLE)
    for _ in range(2):
        executors.fence()
    assert sink.fenced == [sink.fenced[0]] * 3


def test_a_fence_that_failed_is_tried_again() -> None:
    class Down(Planned):
        def fence(self, stream: str) -> None:
            super().fence(stream)
            if len(self.fenced) == 1:
                raise ServiceError("down")

    sink = Down()
    executors = batches(sink, InProcess())
    with pytest.raises(ServiceError):
        executors.fence()
    for _ in range(2):
        executors.fence()
    assert len(sink.fenced) == 2


def test_tasks_know_how_many_partitions_a_topic_has_and_the_sink_what_they_lack() -> None:
    """Of Kafka's records; those of a snapshot have schemas of their own, and are in any partition."""
    [value] = [schema_id for schema_id, entry in entries().items() if entry.part == "value"]
    sink, runner = Planned(), InProcess(lacks=frozenset({value}))
    summary, counts = batches(sink, runner).write(FRAME, 0, {FIRST: 5, SECOND: 7, ("t.ks.other", 4): 1}, TABLE)
    assert runner.counts == [{"t.ks.t": 2, "t.ks.other": 5}] * 2
    assert [len(definitions) for _, definitions in sink.plans] == [0, 1]
    assert sink.plans[1][1][0][1].name == entries()[value].table.name
    assert (summary, counts) == (Summary(2, 2), RecordCounts(2))
    of_snapshot = InProcess(lacks=frozenset({b"read"}))
    records = RecordSource(of_snapshot.runner, {b"read": entries()[value]}, {"@1": None})
    batches(sink, runner).write(FRAME, 1, {FIRST: 5}, TABLE, records)
    assert of_snapshot.counts == [{"@1": None}] * 2
    assert len(runner.counts) == 2


def test_packages_that_executors_lack_are_named_with_the_remedy() -> None:
    error = PythonException("... ModuleNotFoundError: No module named 'fastavro' ...")
    with pytest.raises(MissingPackagesError, match=r"no module fastavro: bring it by `tailrace stream --archive"):
        batches(Planned(), InProcess(error=error)).write(FRAME, 0, {FIRST: 5}, TABLE)
    with pytest.raises(PythonException, match="what else"):
        batches(Planned(), InProcess(error=PythonException("what else"))).write(FRAME, 0, {FIRST: 5}, TABLE)
