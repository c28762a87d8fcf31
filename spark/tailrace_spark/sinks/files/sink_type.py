"""The type `files`: Parquet or JSON lines by table and day."""

from __future__ import annotations

from typing import Final

from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: FilesSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.files.outlet import FilesOutlet, FilesSink
    from tailrace_spark.sinks.files.store import FileStore
    from tailrace_spark.sinks.images.planning import images_for

    outlet = FilesOutlet(FileStore.of(settings), settings, letters=around.letters)
    images, _ = images_for(name, settings, around)
    return FilesSink(outlet, images, transactions=settings.transactions)


FILES: Final = SinkType(
    name="files",
    settings=FilesSinkSettings,
    kinds=(Kind.CHANGE_LOG,),
    guarantee="Each change is in one file, which is whole or absent; a redelivered batch writes the same files.",
    extra="files",
    packages=("pyarrow",),
    document="docs/sinks/files.md",
    open=_open,
    where="path",
)
