"""The half of a change log that writes in tasks: each Kafka partition in its order, by its worker's connections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Protocol, TypeVar

from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.changelog.sink import Batch, ChangeLogSink, Imaging, Outlet
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.sinks.without_truncations import without_truncations
from tailrace_spark.sinks.worker_cache import WorkerCache


class PartitionOutlet(Outlet, Protocol):
    """A worker process's connections to where a change log goes."""

    def begin_partition(self, batch: TaskBatch) -> Batch:
        """One Kafka partition's part of a batch."""


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
    """Writes a Kafka partition's records to where a change log goes.

    A truncation is the driver's: it is of all keys, and tasks beside each other have no order.
    """

    opener: PartitionOpener = field(repr=False)
    batch: TaskBatch
    imaging: PartitionImaging | None = None

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """As PartitionTask says."""
        pieces = without_truncations(pieces)
        imaged = pieces if self.imaging is None else self.imaging.imaged(partition, pieces)
        with _OUTLETS.borrowed(self.opener) as opened:
            return PartitionResult(partition, opened.sink.into(opened.outlet.begin_partition(self.batch), imaged))


class OpenedOutlet(Generic[Opened]):
    """A worker process's outlet, and a sink of it."""

    def __init__(self, opener: Opener[Opened]) -> None:
        self.outlet = opener.open()
        self.sink = ChangeLogSink(self.outlet)

    def close(self) -> None:
        """End its connections."""
        self.sink.close()


_OUTLETS: Final = WorkerCache[PartitionOpener, OpenedOutlet[PartitionOutlet]](OpenedOutlet)


class TaskLogSink(ChangeLogSink):
    """As ChangeLogSink; with an `opener`, and a `planner` where there are images, tasks write too.

    Readers leave out by its place what comes twice. Every attempt at a task writes each key in order, from the batch's
    beginning on. So the first copies are in order, whatever other attempts do, and there is nothing to fence but the
    images' state.
    """

    def __init__(
        self,
        outlet: Outlet,
        imaging: Imaging | None = None,
        opener: PartitionOpener | None = None,
        planner: ImagingPlanner | None = None,
        *,
        transactions: bool = False,
    ) -> None:
        super().__init__(outlet, imaging, transactions=transactions)
        self._planner = planner
        self._opener = opener if imaging is None or planner is not None else None

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, tasks=None if self._opener is None else self)

    def fence(self, stream: str) -> None:
        """As TaskSink says, of what readers see: what a task still writes is a copy of what is written already."""
        if self._planner is not None:
            self._planner.fence(stream)

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> LogTask:
        """As TaskSink says."""
        if self._opener is None:
            raise ValueError("a sink without an opener has no tasks: capabilities.tasks says so")
        return LogTask(self._opener, batch, None if self._planner is None else self._planner.plan(batch, definitions))

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        """As TaskSink says."""
        del batch
        if self._planner is not None:
            self._planner.commit()
        return sum((result.summary for result in results), Summary())
