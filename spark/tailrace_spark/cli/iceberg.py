"""`tailrace iceberg`: what Iceberg tables of a sink need from time to time, and what a sink does not do by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace_common.cli.console import print_rows
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_schemas.errors import SettingsError
from tailrace_spark.cli.support import NO_TABLES, TableNames, chosen_sink, chosen_tables, require_installed
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings

if TYPE_CHECKING:
    from tailrace_spark.sinks.iceberg.maintenance import Maintenance

app = typer.Typer(
    no_args_is_help=True,
    help="Maintain a sink's Iceberg tables: list, compact, expire.\n\n"
    "Example: tailrace iceberg tables -c tailrace.toml",
)

Sink = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The [sink.NAME] of the tables. Default: stream.sink."),
]


@app.command("tables")
def tables(config: SettingsFile = None, sink: Sink = None) -> None:
    """List the sink's Iceberg tables: number of snapshots, and files and bytes of the newest.

    Example: tailrace iceberg tables -c tailrace.toml
    """
    work = _maintenance(config, sink)
    print_rows((work.describe(name) for name in chosen_tables(work.store, None)), empty=NO_TABLES)


@app.command("compact")
def compact(config: SettingsFile = None, sink: Sink = None, table: TableNames = None) -> None:
    """Merge small files, table by table: reading, and merging into current tables, become faster.

    A stream may write meanwhile. If both change the same files, one of them fails: run the command again.

    Example: tailrace iceberg compact -c tailrace.toml
    """
    work = _maintenance(config, sink)
    print_rows(({"table": name, **work.compact(name)} for name in chosen_tables(work.store, table)), empty=NO_TABLES)


@app.command("expire")
def expire(
    config: SettingsFile = None,
    sink: Sink = None,
    table: TableNames = None,
    hours: Annotated[
        int, typer.Option(metavar="N", min=1, help="Keep snapshots of this many hours, and the newest.")
    ] = 168,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the files, and remove none.")] = False,
) -> None:
    """Expire older snapshots, and remove files that no snapshot uses, those left by a crash included.

    Older states of a table become unreadable. Each batch makes a snapshot: run the command regularly, or a table's
    metadata grows without limit.

    Example: tailrace iceberg expire -c tailrace.toml --dry-run
    """
    work = _maintenance(config, sink)
    names = chosen_tables(work.store, table)
    expired = ({"table": name, **work.expire(name, hours, dry_run=dry_run)} for name in names)
    print_rows(expired, empty=NO_TABLES)


def _maintenance(config: Path | None, name: str | None) -> Maintenance:
    chosen, section = chosen_sink(settings_of(config), name)
    if not isinstance(section, IcebergSinkSettings):
        raise SettingsError(f'sink.{chosen}: type = "{section.type}" has no Iceberg tables')
    require_installed(chosen, section)
    from tailrace_spark.sinks.iceberg.maintenance import Maintenance
    from tailrace_spark.sinks.iceberg.store import IcebergStore

    return Maintenance(IcebergStore(section))
