"""The files sink's half on executors: each task writes files of its Kafka partition, which count by one manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, RecordKey
from tailrace_spark.batch.task_batch import PartitionResult
from tailrace_spark.sinks.changelog.sink import Batch, ChangeLogSink
from tailrace_spark.sinks.files.manifest import CommittedFile, Ends
from tailrace_spark.sinks.files.outlet import FilesBatch, FilesOutlet
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore
from tailrace_spark.sinks.shared_directory import require_same


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What a task has written: nobody takes it for committed. `letters` is the path of its dead letters' file."""

    attempt: str
    files: tuple[CommittedFile, ...]
    moved: Ends
    letters: str | None


@dataclass(frozen=True, slots=True)
class FilesTask:
    """Writes a Kafka partition's changes behind `ends`, what was committed of all when it was planned.

    `attempt` begins the names of files. `mark` is that of the store's directory, where it has one.
    """

    store: FileStore = field(repr=False)
    settings: FilesSinkSettings = field(repr=False)
    attempt: str
    ends: Mapping[KafkaPartition, int]
    mark: str | None

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """As PartitionTask says."""
        if self.store.directory is not None and self.mark is not None:
            require_same(self.store.directory, self.mark)
        outlet = _TaskOutlet(self)
        summary = ChangeLogSink(outlet).into(outlet.begin(), pieces)
        return PartitionResult(partition, summary, outlet.written)


class _TaskOutlet(FilesOutlet):
    """Commits nothing; `written` is what a driver may commit."""

    def __init__(self, task: FilesTask) -> None:
        super().__init__(task.store, task.settings)
        self._task = task
        self.written: WrittenFiles | None = None

    def begin(self) -> Batch:
        # No other attempt at the partition has such names, so none writes over another's files.
        name = f"{self._task.attempt}-{uuid4().hex[:12]}"
        return FilesBatch(self, self._task.store, self._task.settings, name, dict(self._task.ends))

    def commit(
        self,
        files: tuple[CommittedFile, ...],
        moved: Ends,
        dead_letters: str | None,
        replayed: tuple[RecordKey, ...] = (),
    ) -> None:
        """Leave that to the driver."""
        del replayed  # a batch of a stream's replays none
        self.written = WrittenFiles(self._task.attempt, files, moved, dead_letters)
