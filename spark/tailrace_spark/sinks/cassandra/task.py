"""The half of a sink in a Cassandra cluster that writes in tasks: by each worker process's own connection, without DDL.

Writes have the source's own write times, so attempts beside each other, late ones and any order leave the same rows.
What has no such time is the driver's alone: tables and types, watermarks. A table that was dropped and
made again there is another one, which late attempts must not write: tasks look before each piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Delivered, Piece, Summary
from tailrace_spark.batch.task_batch import PartitionResult
from tailrace_spark.sinks.cassandra.cluster import CassandraStore
from tailrace_spark.sinks.protocol import UnpreparedError
from tailrace_spark.sinks.worker_cache import WorkerCache


class WorkerStore(CassandraStore):
    """A worker process's connection to a cluster."""

    def define(self, statement: str) -> None:
        """Raises UnpreparedError: tables and types are the driver's."""
        raise UnpreparedError(statement)


class WorkerSink(Protocol):
    """What a task asks of the sink of its process."""

    def look_again(self, changes: Sequence[Delivered]) -> None: ...

    def begin(self, task: CassandraTask) -> None: ...

    def write(self, pieces: Iterable[Piece]) -> Summary: ...

    def close(self) -> None: ...


class Opener(Protocol):
    """Makes the sink of a worker process; equal ones share it. It is pickled, and has secrets."""

    def open(self) -> WorkerSink: ...


@dataclass(frozen=True, slots=True)
class CassandraTask:
    """Writes a Kafka partition's records.

    `refused`: why the cluster does not get what some definitions need, by `digest_of` these. `definitions`: what the
    sink knows of each table, as JSON, with the offset in `.schemas` that it is of; compiled classes cannot be pickled.
    """

    opener: Opener = field(repr=False)
    refused: Mapping[str, str]
    definitions: Mapping[str, tuple[int, str]] = field(default_factory=dict, repr=False)

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """As PartitionTask says; where it raises, some of the records may be written."""
        with _SINKS.borrowed(self.opener) as sink:
            sink.begin(self)
            return PartitionResult(partition, sink.write(_looked_at(sink, pieces)))


def _looked_at(sink: WorkerSink, pieces: Iterable[Piece]) -> Iterator[Piece]:
    for piece in pieces:
        sink.look_again(piece.changes)
        yield piece


def _open(opener: Opener) -> WorkerSink:
    return opener.open()


_SINKS: Final = WorkerCache(_open)
