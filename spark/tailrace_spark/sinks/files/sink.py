"""The files sink: a change log whose batches the driver or tasks write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.changelog.replayable import ProgressLogSink
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, Imaging
from tailrace_spark.sinks.files.dead_letters import ReplayableFilesOutlet
from tailrace_spark.sinks.files.outlet import Attempt, FilesBatch, FilesOutlet
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore
from tailrace_spark.sinks.protocol import Capabilities, DriverOnlyError


class FilesSink(ProgressLogSink):
    """As ProgressLogSink, and a TaskSink where changes have no row images: these are merged in one process."""

    def __init__(
        self,
        outlet: ReplayableFilesOutlet,
        imaging: Imaging | None = None,
        *,
        transactions: bool = False,
    ) -> None:
        super().__init__(outlet, imaging, transactions=transactions)
        self._files = outlet
        self._has_images = imaging is not None

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, tasks=None if self._has_images else self)

    def fence(self, stream: str) -> None:
        """As TaskSink says, by what the next attempt does: only one stream writes here."""
        del stream
        self._files.fence()

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> FilesTask:
        """As TaskSink says."""
        del definitions  # files say their own
        attempt = self._files.attempt()
        self._files.extend(batch.ends)
        return FilesTask(self._files.store, self._files.settings, attempt)

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        """As TaskSink says: what tasks write is in place when they end."""
        del batch
        self._files.finish()
        return sum((result.summary for result in results), Summary())


@dataclass(frozen=True, slots=True)
class FilesTask:
    """Writes a Kafka partition's changes, and dead letters, under the names that any other attempt gives them."""

    store: FileStore = field(repr=False)
    settings: FilesSinkSettings = field(repr=False)
    attempt: Attempt

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """As PartitionTask says."""
        if self.store.local and not self.store.holds(self.attempt.name):
            raise DriverOnlyError("the sink's path is a directory of each machine, which executors do not share")
        batch = FilesBatch(self.store, self.settings, self.attempt)
        return PartitionResult(partition, ChangeLogSink(FilesOutlet(self.store, self.settings)).into(batch, pieces))
