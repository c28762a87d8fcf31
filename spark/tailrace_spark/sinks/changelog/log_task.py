"""The half of a change log that writes in tasks: each Kafka partition in its order, by its worker's connections."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import DeadLetter, Piece
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.changelog.sink import Batch, ChangeLogSink, Outlet
from tailrace_spark.sinks.protocol import DriverOnlyError
from tailrace_spark.sinks.without_truncations import without_truncations
from tailrace_spark.sinks.worker_cache import WorkerCache

LARGEST_LETTERS: Final = 8 << 20
"""Bytes of a partition's dead letters, as JSON, that a task brings to the driver."""


class Letters(Protocol):
    """What keeps dead letters: a file, or what brings them to the driver."""

    def put(self, letters: Sequence[DeadLetter]) -> None: ...


class TaskLetters:
    """Dead letters that a task's driver puts into their file."""

    def __init__(self, largest: int = LARGEST_LETTERS) -> None:
        self._largest = largest
        self.letters: tuple[DeadLetter, ...] = ()

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Keep them for the driver. Raises DriverOnlyError where they are too many to bring."""
        size = sum(len(json.dumps(letter.to_json())) for letter in letters)
        if size > self._largest:
            raise DriverOnlyError(f"{len(letters)} dead letters of one partition have {size} bytes")
        self.letters = tuple(letters)


class PartitionOutlet(Outlet, Protocol):
    """A worker process's connections to where a change log goes."""

    def begin_partition(self, batch: TaskBatch, partition: KafkaPartition, letters: TaskLetters) -> Batch:
        """One Kafka partition's part of a batch; what it sets aside goes to `letters` when it commits."""


class PartitionImaging(Protocol):
    """Gives the changes of a Kafka partition their row images, in a task: `images.planning.ImagingTask`. Pickled."""

    def imaged(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces, which come by offset, with images. Raises UnpreparedError, FencedError, ServiceError."""


class ImagingPlanner(Protocol):
    """The driver's half of images that tasks make: `images.planning.ImagePlanner`."""

    def fence(self, stream: str) -> None:
        """As TaskSink says."""

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> PartitionImaging:
        """As TaskSink says."""

    def commit(self) -> None:
        """All tasks of a batch are done."""


Opened = TypeVar("Opened", bound=Outlet)
OpenedHere = TypeVar("OpenedHere", bound=Outlet, covariant=True)


class Opener(Protocol[OpenedHere]):
    """Makes the outlet of a worker process; equal ones share it. It is pickled, and may have secrets."""

    def open(self) -> OpenedHere: ...


PartitionOpener = Opener[PartitionOutlet]


@dataclass(frozen=True, slots=True)
class LogTask:
    """Writes a Kafka partition's records to where a change log goes; its result's `detail` are its dead letters.

    A truncation is the driver's: it is of all keys, and tasks beside each other have no order.
    """

    opener: PartitionOpener = field(repr=False)
    batch: TaskBatch
    imaging: PartitionImaging | None = None

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """As PartitionTask says."""
        letters = TaskLetters()
        pieces = without_truncations(pieces)
        imaged = pieces if self.imaging is None else self.imaging.imaged(partition, pieces)
        with _OUTLETS.borrowed(self.opener) as opened:
            summary = opened.sink.into(opened.outlet.begin_partition(self.batch, partition, letters), imaged)
        return PartitionResult(partition, summary, letters.letters)


def letters_of(results: Iterable[PartitionResult]) -> list[DeadLetter]:
    """The dead letters that LogTasks brought."""
    return [letter for result in results if isinstance(result.detail, tuple) for letter in result.detail]


class OpenedOutlet(Generic[Opened]):
    """A worker process's outlet, and a sink of it."""

    def __init__(self, opener: Opener[Opened]) -> None:
        self.outlet = opener.open()
        self.sink = ChangeLogSink(self.outlet)

    def close(self) -> None:
        """End its connections."""
        self.sink.close()


_OUTLETS: Final = WorkerCache[PartitionOpener, OpenedOutlet[PartitionOutlet]](OpenedOutlet)
