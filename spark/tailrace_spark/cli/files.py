"""`tailrace files`: what a files sink has, and its small files and manifests put together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace_common.cli.console import print_rows
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.sink_type import FILES

if TYPE_CHECKING:
    from tailrace_spark.sinks.files.store import FileStore

app = typer.Typer(
    no_args_is_help=True,
    help="Maintain a files sink: list, compact.\n\nExample: tailrace files list -c tailrace.toml",
)

Sink = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The [sink.NAME] of the files. Default: stream.sink."),
]


@app.command("list")
def list_files(config: SettingsFile = None, sink: Sink = None) -> None:
    """List committed files below the sink's path: number, changes and bytes by table and day.

    Example: tailrace files list -c tailrace.toml
    """
    store, _ = _opened(config, sink)
    print_rows(_days(store), empty="the sink has no files yet")


@app.command("compact")
def compact(
    config: SettingsFile = None,
    sink: Sink = None,
    hours: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Remove files that were replaced, or left by a crash, this long ago."),
    ] = 24,
) -> None:
    """Merge small files of each table and day, and the manifests of many batches. Once a day is enough.

    A stream may write meanwhile, and readers of the manifests may read. Replaced files stay for some hours, for readers
    that began before. The command may be stopped at any time, and run again.

    Example: tailrace files compact -c tailrace.toml
    """
    from tailrace_spark.sinks.files.compaction import Compaction

    store, section = _opened(config, sink)
    done = Compaction(store, section.file_mebibytes << 20, time.time).run(hours)
    print_rows([{"commits": done.commits, "joined": done.joined, "made": done.made, "removed": done.removed}])


def _days(store: FileStore) -> Iterator[dict[str, object]]:
    from tailrace_spark.sinks.files.reader import CommittedFiles

    totals: dict[tuple[str, str], list[int]] = {}
    for file in CommittedFiles(store).files():
        total = totals.setdefault((file.table, file.day), [0, 0, 0])
        for index, addend in enumerate((1, file.records, file.bytes)):
            total[index] += addend
    for (table, day), (files, changes, size) in sorted(totals.items()):
        yield {"table": table, "day": day, "files": files, "changes": changes, "bytes": size}


def _opened(config: Path | None, name: str | None) -> tuple[FileStore, FilesSinkSettings]:
    settings = settings_of(config)
    try:
        chosen, section = (name, settings.sink[name]) if name is not None else settings.stream_sink()
    except KeyError:
        raise SettingsError(f"--sink {name}: there is no [sink.{name}]; set: {', '.join(settings.sink)}") from None
    except ValueError as error:
        raise SettingsError(str(error)) from None
    if not isinstance(section, FilesSinkSettings):
        raise SettingsError(f'sink.{chosen}: type = "{section.type}" has no files')
    if missing := FILES.missing():
        raise SettingsError(f"sink.{chosen}: needs {', '.join(missing)}, not installed: {FILES.install}")
    from tailrace_spark.sinks.files.store import FileStore

    store: Any = FileStore.of(section)
    store.reach()
    return store, section
