"""The files sink: a change log whose batches the driver or tasks write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.sink_progress import SinkProgress
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, Imaging
from tailrace_spark.sinks.files.outlet import Attempt, FilesBatch, FilesOutlet
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore
from tailrace_spark.sinks.letters import Letters
from tailrace_spark.sinks.protocol import Capabilities, DriverOnlyError


class FilesSink(ChangeLogSink):
    """As ChangeLogSink, a ProgressSink, and a TaskSink where changes have no row images: these are merged in one
    process."""

    def __init__(
        self,
        outlet: FilesOutlet,
        imaging: Imaging | None = None,
        *,
        transactions: bool = False,
    ) -> None:
        super().__init__(outlet, imaging, transactions=transactions)
        self._files = outlet
        self._has_images = imaging is not None

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, progress=self, tasks=None if self._has_images else self)

    def progress(self, stream: str) -> SinkProgress | None:
        """As ProgressSink says."""
        return self._files.progress(stream)

    def keep_progress(self, progress: SinkProgress) -> None:
        """As ProgressSink says."""
        self._files.keep_progress(progress)

    def fence(self, stream: str) -> None:
        """As TaskSink says, by what the next attempt does: only one stream writes here."""
        del stream
        self._files.fence()

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> FilesTask:
        """As TaskSink says."""
        del definitions  # files say their own
        attempt = self._files.attempt()
        self._files.extend(batch.ends)
        return FilesTask(self._files.store, self._files.settings, attempt, self._files.letters)

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        """As TaskSink says: what tasks write is in place when they end."""
        del batch
        self._files.finish()
        return sum((result.summary for result in results), Summary())


@dataclass(frozen=True, slots=True)
class FilesTask:
    """Writes a Kafka partition's changes under the names that any other attempt gives them."""

    store: FileStore = field(repr=False)
    settings: FilesSinkSettings = field(repr=False)
    attempt: Attempt
    letters: Letters

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """As PartitionTask says."""
        if self.store.local and not self.store.holds(self.attempt.name):
            raise DriverOnlyError("the sink's path is a directory of each machine, which executors do not share")
        batch = FilesBatch(self.store, self.settings, self.attempt, self.letters)
        return PartitionResult(partition, ChangeLogSink(FilesOutlet(self.store, self.settings)).into(batch, pieces))
