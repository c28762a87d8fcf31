"""A TaskSink that keeps what it is asked for, and whose tasks say what they are to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.protocol import Capabilities

Write = Callable[[KafkaPartition, Iterable[Piece]], PartitionResult]


def read_all(partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
    """Take all pieces in."""
    read = list(pieces)
    changes = sum(len(piece.changes) for piece in read)
    return PartitionResult(partition, Summary(changes, changes, sum(len(piece.dead_letters) for piece in read)), read)


@dataclass(frozen=True)
class PlannedTask:
    """The task of a sink's plan; by default it takes in everything."""

    number: int
    act: Write = field(default=read_all, compare=False)

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """As PartitionTask says."""
        return self.act(partition, pieces)


@dataclass
class Planned:
    """What was planned, committed and fenced."""

    act: Write = read_all
    plans: list[tuple[TaskBatch, list[tuple[int, Table]]]] = field(default_factory=list)
    commits: list[tuple[TaskBatch, list[PartitionResult]]] = field(default_factory=list)
    fenced: list[str] = field(default_factory=list)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(tasks=self)

    def write(self, pieces: Iterable[Piece]) -> Summary:
        """As the driver writes."""
        return read_all(("", 0), pieces).summary

    def fence(self, stream: str) -> None:
        self.fenced.append(stream)

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> PlannedTask:
        self.plans.append((batch, list(definitions)))
        return PlannedTask(len(self.plans) - 1, self.act)

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        self.commits.append((batch, list(results)))
        return sum((result.summary for result in results), Summary())

    def close(self) -> None:
        """There is nothing to close."""
