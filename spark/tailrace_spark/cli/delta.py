"""`tailrace delta`: what Delta tables of a sink need from time to time, and what a sink does not do by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace_common.cli.console import print_rows
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_schemas.errors import SettingsError
from tailrace_spark.cli.support import NO_TABLES, TableNames, chosen_sink, chosen_tables, require_installed
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings

if TYPE_CHECKING:
    from tailrace_spark.sinks.delta.store import DeltaStore

app = typer.Typer(
    no_args_is_help=True,
    help="Maintain a sink's Delta tables: list, compact, vacuum.\n\nExample: tailrace delta tables -c tailrace.toml",
)

Sink = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The [sink.NAME] of the tables. Default: stream.sink."),
]


@app.command("tables")
def tables(config: SettingsFile = None, sink: Sink = None) -> None:
    """List the Delta tables below the sink's path: version, files, bytes, and whether it has row states.

    Example: tailrace delta tables -c tailrace.toml
    """
    store = _store(config, sink)
    print_rows((store.describe(name) for name in chosen_tables(store, None)), empty=NO_TABLES)


@app.command("compact")
def compact(config: SettingsFile = None, sink: Sink = None, table: TableNames = None) -> None:
    """Merge small files, table by table: reading, and merging into current tables, become faster.

    A stream may write meanwhile. If both change the same files, one of them fails: run the command again.

    Example: tailrace delta compact -c tailrace.toml
    """
    store = _store(config, sink)
    print_rows(({"table": name, **store.compact(name)} for name in chosen_tables(store, table)), empty=NO_TABLES)


@app.command("vacuum")
def vacuum(
    config: SettingsFile = None,
    sink: Sink = None,
    table: TableNames = None,
    hours: Annotated[
        int,
        typer.Option(metavar="N", min=168, help="Retention in hours: keep unreferenced files younger than this."),
    ] = 168,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the files, and remove none.")] = False,
) -> None:
    """Remove files that no recent version of a table uses, those left by a crash included.

    Older versions become unreadable.

    Example: tailrace delta vacuum -c tailrace.toml --dry-run
    """
    store = _store(config, sink)
    names = chosen_tables(store, table)
    removed = ({"table": name, "removed": store.vacuum(name, hours, dry_run=dry_run)} for name in names)
    print_rows(removed, empty=NO_TABLES)


def _store(config: Path | None, name: str | None) -> DeltaStore:
    chosen, section = chosen_sink(settings_of(config), name)
    if not isinstance(section, DeltaSinkSettings):
        raise SettingsError(f'sink.{chosen}: type = "{section.type}" has no Delta tables')
    require_installed(chosen, section)
    from tailrace_spark.sinks.delta.store import DeltaStore

    return DeltaStore(section)
