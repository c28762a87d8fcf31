"""Writes micro-batches by tasks on Spark's executors, under the stream's id, which is in the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from pyspark.errors import PythonException
from pyspark.sql import DataFrame

from tailrace_common.topics.schemas import SchemaReader
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.batch.task_batch import TaskBatch
from tailrace_spark.job.checkpoint_files import Files
from tailrace_spark.job.notes import decode_note, encode_note
from tailrace_spark.job.offsets import Offsets
from tailrace_spark.job.task_loop import write_by_tasks
from tailrace_spark.shaping import Shape
from tailrace_spark.sinks.protocol import PartitionTask, TaskSink
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.job import TaskRunner
from tailrace_spark.tasks.outcome import Outcome, RecordCounts

_NOTE: Final = "tasks.json"
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


class MissingPackagesError(Exception):
    """The executors' Python cannot run tasks; the words say what it lacks, and what to do."""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """Records that are no Kafka source's: what runs their tasks, and all schemas that they may have.

    `partitions` counts those of each topic; None: its records are in any, whatever their tokens.
    """

    runner: TaskRunner
    schemas: Mapping[bytes, SchemaEntry]
    partitions: Mapping[str, int | None]


class ExecutorBatches:
    """Writes batches of one stream by tasks. `files` are those of `<checkpoint>/tailrace`: the stream's id is there."""

    def __init__(
        self,
        sink: TaskSink,
        runner: TaskRunner,
        schemas: SchemaReader,
        shape: Shape | None,
        files: Files,
        read_back: Callable[[], ReadBack | None] = lambda: None,
    ) -> None:
        self._sink = sink
        self._runner = runner
        self._schemas = schemas
        self._shape = shape
        self._files = files
        self._read_back = read_back
        self._may_write = True
        self._stream: str | None = None

    def fence(self) -> None:
        """Keep tasks of earlier batches, or of an earlier driver, from writing beside what the driver writes.

        Raises ServiceError.
        """
        if self._may_write:
            self._sink.fence(self._id())
            self._may_write = False

    def write(
        self, frame: DataFrame, number: int, ends: Offsets, table: StreamTable, records: RecordSource | None = None
    ) -> tuple[Summary, RecordCounts]:
        """Write a batch of `with_head` which ends at these offsets, by default of Kafka's records.

        Raises SharedKeysError and DriverOnlyError where only the driver can write it, ServiceError and SettingsError
        as tasks do. Raises MissingPackagesError where executors cannot run tasks.
        """
        self._may_write = True
        batch = TaskBatch(self._id(), number, ends)
        runner = self._runner if records is None else records.runner
        partitions: Mapping[str, int | None] = _counts(ends) if records is None else records.partitions
        read_back = self._read_back() if records is None else None
        schemas = dict(self._schemas) if records is None else records.schemas

        def run(task: PartitionTask, finished: frozenset[KafkaPartition]) -> Sequence[Outcome]:
            try:
                return runner.run(frame, task, table, schemas, partitions, finished, read_back)
            except PythonException as error:
                raise missing_packages(error) from error

        return write_by_tasks(self._sink, batch, run, schemas, self._definition)

    def _definition(self, table: Table) -> Table | None:
        return table if self._shape is None else self._shape.definition(table)

    def _id(self) -> str:
        if self._stream is None:
            self._stream = stream_id(self._files)
        return self._stream


def stream_id(files: Files) -> str:
    """The id of a checkpoint's stream; it is in the checkpoint before anybody hears of it.

    `files` are those of `<checkpoint>/tailrace`.
    """
    text = files.read(_NOTE)
    if text is None:
        text = encode_note(stream=uuid4().hex)
        files.write(_NOTE, text)
    return str(decode_note(text, _NOTE)["stream"])


def missing_packages(error: PythonException) -> Exception:
    """What a job's failure is about: packages that the executors' Python lacks, or what it says itself."""
    lacking = _NO_MODULE.search(str(error))
    if lacking is None:
        return error
    return MissingPackagesError(
        f"the executors' Python has no module {lacking[1]}: bring it by `tailrace stream --archive FILE` and "
        "spark.archives (docs/spark.md)"
    )


def _counts(ends: Offsets) -> dict[str, int]:
    """The number of each topic's partitions: Spark plans offsets for all of them."""
    counts: dict[str, int] = {}
    for topic, partition in ends:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return counts
