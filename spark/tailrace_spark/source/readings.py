"""Readings of topics: what is read again, or of a topic that was made again, has places that no change had before.

Sinks that keep each change leave out what they have by its place in Kafka. So they would leave out all that a reset
reads, and the first records of a topic that begins at offset 0 again. In the places of a later reading the topic is
`<topic>@<reading>`, as it is `<topic>@<snapshot>` in those of rows that a snapshot reads. Sinks that merge rows are
given the places of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.protocol import Capabilities, PartitionTask, Sink, TaskSink
from tailrace_spark.streams.assign import SNAPSHOT_MARK

Readings = Mapping[str, str]
"""The name of the reading of each topic, and under EVERY that of all other topics. The first one has no name."""

EVERY: Final = ""


def of_readings(sink: Sink, readings: Readings) -> Sink:
    """The sink, given places of these readings if it keeps each change. `readings` may grow between batches."""
    return _ReadingSink(sink, readings) if sink.capabilities.ordered else sink


class _ReadingSink:
    """As the sink, and a TaskSink where that is one."""

    def __init__(self, sink: Sink, readings: Readings) -> None:
        self._sink = sink
        self._readings = readings

    @property
    def capabilities(self) -> Capabilities:
        capabilities = self._sink.capabilities
        return replace(capabilities, tasks=None if capabilities.tasks is None else self)

    def write(self, pieces: Iterable[Piece]) -> Summary:
        return self._sink.write(_moved(pieces, self._readings))

    def close(self) -> None:
        self._sink.close()

    def fence(self, stream: str) -> None:
        """As TaskSink says."""
        self._tasks.fence(stream)

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> PartitionTask:
        """As TaskSink says."""
        readings = dict(self._readings)
        return _ReadingTask(self._tasks.plan(_of(batch, readings), definitions), readings)

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        """As TaskSink says."""
        readings = self._readings
        moved = [replace(result, partition=_partition(result.partition, readings)) for result in results]
        return self._tasks.commit(_of(batch, readings), moved)

    @property
    def _tasks(self) -> TaskSink:
        tasks = self._sink.capabilities.tasks
        if tasks is None:
            raise ValueError("a sink without tasks: capabilities.tasks says so")
        return tasks


@dataclass(frozen=True, slots=True)
class _ReadingTask:
    """As the task, for partitions and pieces as Kafka has them."""

    task: PartitionTask = field(repr=False)
    readings: Readings

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """As PartitionTask says."""
        result = self.task.write(_partition(partition, self.readings), _moved(pieces, self.readings))
        return replace(result, partition=partition)


def _topic(topic: str, readings: Readings) -> str:
    name = readings.get(topic) or readings.get(EVERY)
    return topic if not name or SNAPSHOT_MARK in topic else f"{topic}{SNAPSHOT_MARK}{name}"


def _partition(partition: KafkaPartition, readings: Readings) -> KafkaPartition:
    return _topic(partition[0], readings), partition[1]


def _of(batch: TaskBatch, readings: Readings) -> TaskBatch:
    ends = {_partition(partition, readings): end for partition, end in batch.ends.items()}
    return replace(batch, ends=ends)


def _moved(pieces: Iterable[Piece], readings: Readings) -> Iterable[Piece]:
    return (_piece(piece, readings) for piece in pieces) if readings else pieces


def _piece(piece: Piece, readings: Readings) -> Piece:
    return Piece(
        tuple(replace(delivered, record_id=_record_id(delivered, readings)) for delivered in piece.changes),
        tuple(replace(letter, record_id=_record_id(letter, readings)) for letter in piece.dead_letters),
    )


def _record_id(record: Delivered | DeadLetter, readings: Readings) -> RecordId:
    record_id = record.record_id
    return replace(record_id, topic=_topic(record_id.topic, readings))
