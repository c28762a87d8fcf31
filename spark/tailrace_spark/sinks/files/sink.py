"""The files sink: a change log whose batches the driver or tasks write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.changelog.replayable import ProgressLogSink
from tailrace_spark.sinks.changelog.sink import Imaging
from tailrace_spark.sinks.files.dead_letters import ReplayableFilesOutlet
from tailrace_spark.sinks.files.manifest import Ends
from tailrace_spark.sinks.files.store import hidden
from tailrace_spark.sinks.files.task import FilesTask, WrittenFiles
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.sinks.shared_directory import mark_of, require_files


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
        self._attempt: str | None = None

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, tasks=None if self._has_images else self)

    def fence(self, stream: str) -> None:
        """As TaskSink says: what a task has written counts by a manifest alone, which one driver writes."""

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> FilesTask:
        """As TaskSink says."""
        del batch, definitions  # the manifests note offsets and not the batch, tasks keep definitions themselves
        self._files.claim()
        attempt, ends = self._files.attempt()
        self._attempt = attempt
        directory = self._files.store.directory
        mark = None if directory is None else mark_of(directory)
        return FilesTask(self._files.store, self._files.settings, attempt, ends, mark)

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        """As TaskSink says: one manifest for the files of all tasks."""
        del batch
        written = [result.detail for result in results if isinstance(result.detail, WrittenFiles)]
        if any(task_files.attempt != self._attempt for task_files in written):
            raise ServiceError("files of an earlier plan are not committed behind a later one: the batch comes again")
        try:
            if written:
                self._commit(written)
        except BaseException:
            self._files.forget()
            raise
        finally:
            self._attempt = None
        return sum((result.summary for result in results), Summary())

    def _commit(self, written: Sequence[WrittenFiles]) -> None:
        store, moved = self._files.store, Ends()
        files = tuple(sorted((file for task_files in written for file in task_files.files), key=lambda file: file.path))
        if store.directory is not None:
            require_files(store.directory, [(hidden(file.path), file.bytes) for file in files])
        for task_files in written:
            moved |= task_files.moved
        letters = sorted(task_files.letters for task_files in written if task_files.letters is not None)
        path = letters[0] if letters else None
        if len(letters) > 1:
            path = f"_tailrace/dead-letters/{written[0].attempt}.jsonl"
            store.join(path, letters)
        self._files.commit(files, moved, path)
