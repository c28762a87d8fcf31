"""The files sink: a change log in files, which keeps how far its stream is beside them."""

from __future__ import annotations

from dataclasses import replace

from tailrace_spark.batch.delivery import SinkProgress
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, Imaging
from tailrace_spark.sinks.files.outlet import FilesOutlet
from tailrace_spark.sinks.protocol import Capabilities


class FilesSink(ChangeLogSink):
    """As ChangeLogSink, and a ClaimedSink and ProgressSink. Row images are merged in one process, so that executors
    write none."""

    def __init__(self, outlet: FilesOutlet, imaging: Imaging | None = None, *, transactions: bool = False) -> None:
        super().__init__(outlet, imaging, outlet, transactions=transactions)
        self._files = outlet

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, claimed=self, progress=self)

    def claim(self, name: str) -> None:
        """As ClaimedSink says: below a root one writes, whatever its name."""
        del name
        self._files.claim()

    def progress(self, stream: str) -> SinkProgress | None:
        """As ProgressSink says."""
        return self._files.progress(stream)

    def keep_progress(self, progress: SinkProgress) -> None:
        """As ProgressSink says."""
        self._files.keep_progress(progress)
