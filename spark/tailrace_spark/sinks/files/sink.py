"""The files sink: a change log in files, which keeps how far its stream is beside them."""

from __future__ import annotations

from dataclasses import replace

from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.files.outlet import FilesOutlet
from tailrace_spark.sinks.images.store import ImageStore
from tailrace_spark.sinks.protocol import Capabilities


class FilesSink(ChangeLogSink):
    """As ChangeLogSink; its outlet is claimed and keeps progress. Images are merged in one process: by no executor."""

    def __init__(self, outlet: FilesOutlet, imaging: ImageStore | None = None, *, transactions: bool = False) -> None:
        super().__init__(outlet, imaging, outlet, transactions=transactions)
        self._files = outlet

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, claimed=self._files, progress=self._files)
