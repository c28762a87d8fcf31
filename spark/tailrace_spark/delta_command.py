"""`tailrace delta`: what Delta tables of a sink need from time to time, and what a sink does not do by itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace_common.command_options import SettingsFile, settings_of
from tailrace_common.console import print_rows
from tailrace_common.settings_sink_delta import DeltaSinkSettings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.sink_type import SinkType

if TYPE_CHECKING:
    from tailrace_spark.sinks.delta_store import DeltaStore

app = typer.Typer(
    no_args_is_help=True,
    help="Delta tables that a sink writes: list them, put small files together, remove old ones.\n\n"
    "Example: tailrace delta tables -c tailrace.toml",
)

Sink = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The [sink.NAME] whose tables they are, instead of stream.sink."),
]
Table = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only the table of this name, as `tailrace delta tables` has it; repeatable."),
]


@app.command("tables")
def tables(config: SettingsFile = None, sink: Sink = None) -> None:
    """List the Delta tables below the sink's path: version, files, bytes, and whether it is the state of another one.

    Example: tailrace delta tables -c tailrace.toml
    """
    store = _store(config, sink)
    print_rows(store.describe(name) for name in _chosen(store, None))


@app.command("compact")
def compact(config: SettingsFile = None, sink: Sink = None, table: Table = None) -> None:
    """Put small files together, table by table: readers are faster, and so are the merges of tables that follow.

    A stream may write meanwhile. Where both change the same files one of them fails: run this again.

    Example: tailrace delta compact -c tailrace.toml
    """
    store = _store(config, sink)
    print_rows({"table": name, **store.compact(name)} for name in _chosen(store, table))


@app.command("vacuum")
def vacuum(
    config: SettingsFile = None,
    sink: Sink = None,
    table: Table = None,
    hours: Annotated[
        int,
        typer.Option(metavar="N", min=168, help="Keep what was removed, or written by a crash, within so many hours."),
    ] = 168,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
) -> None:
    """Remove files that no version of a table within so many hours has, those that a crash left among them.

    Older versions can then be read no longer.

    Example: tailrace delta vacuum -c tailrace.toml --dry-run
    """
    store = _store(config, sink)
    names = _chosen(store, table)
    print_rows({"table": name, "removed": store.vacuum(name, hours, dry_run=dry_run)} for name in names)


def _store(config: Path | None, name: str | None) -> DeltaStore:
    settings = settings_of(config)
    try:
        chosen, section = (name, settings.sink[name]) if name is not None else settings.stream_sink()
    except KeyError:
        raise SettingsError(f"--sink {name}: there is no [sink.{name}]; set: {', '.join(settings.sink)}") from None
    except ValueError as error:
        raise SettingsError(str(error)) from None
    if not isinstance(section, DeltaSinkSettings):
        raise SettingsError(f'sink.{chosen}: type = "{section.type}" has no Delta tables')
    _require_installed(chosen)
    from tailrace_spark.sinks.delta_store import DeltaStore

    return DeltaStore(section)


def _require_installed(chosen: str) -> None:
    from tailrace_spark.sinks.declared.delta import DELTA

    kind: SinkType = DELTA
    if missing := kind.missing():
        raise SettingsError(f"sink.{chosen}: needs {', '.join(missing)}, not installed: {kind.install}")


def _chosen(store: DeltaStore, wanted: Iterable[str] | None) -> list[str]:
    there = [name for name in store.names() if store.open(name) is not None]
    names = there if wanted is None else list(wanted)
    for name in names:
        if name not in there:
            raise SettingsError(f"--table {name}: there is no such table; there: {', '.join(there) or 'none'}")
    return names
