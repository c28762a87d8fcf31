"""`tailrace delta` and `tailrace iceberg`: what a sink's tables need from time to time, and no sink does by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tailrace_common.cli.console import print_rows
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_schemas.errors import SettingsError
from tailrace_spark.cli.support import NO_TABLES, TableNames, chosen_sink, chosen_tables, require_installed
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings

if TYPE_CHECKING:
    from tailrace_spark.sinks.delta.store import DeltaStore
    from tailrace_spark.sinks.iceberg.maintenance import Maintenance

delta = typer.Typer(
    no_args_is_help=True,
    help="Maintain a sink's Delta tables: list, compact, vacuum.\n\nExample: tailrace delta tables -c tailrace.toml",
)
iceberg = typer.Typer(
    no_args_is_help=True,
    help="Maintain a sink's Iceberg tables: list, compact, expire.\n\n"
    "Example: tailrace iceberg tables -c tailrace.toml",
)

Sink = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The [sink.NAME] of the tables. Default: stream.sink."),
]
Section = TypeVar("Section", DeltaSinkSettings, IcebergSinkSettings)


@delta.command("tables")
def delta_tables(config: SettingsFile = None, sink: Sink = None) -> None:
    """List the Delta tables below the sink's path: version, files, bytes, and whether it has row states.

    Example: tailrace delta tables -c tailrace.toml
    """
    store = _delta_store(config, sink)
    print_rows((store.describe(name) for name in chosen_tables(store, None)), empty=NO_TABLES)


@delta.command("compact")
def delta_compact(config: SettingsFile = None, sink: Sink = None, table: TableNames = None) -> None:
    """Merge small files, table by table: reading, and merging into current tables, become faster.

    A stream may write meanwhile. If both change the same files, one of them fails: run the command again.

    Example: tailrace delta compact -c tailrace.toml
    """
    store = _delta_store(config, sink)
    print_rows(({"table": name, **store.compact(name)} for name in chosen_tables(store, table)), empty=NO_TABLES)


@delta.command("vacuum")
def delta_vacuum(
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
    store = _delta_store(config, sink)
    names = chosen_tables(store, table)
    removed = ({"table": name, "removed": store.vacuum(name, hours, dry_run=dry_run)} for name in names)
    print_rows(removed, empty=NO_TABLES)


@iceberg.command("tables")
def iceberg_tables(config: SettingsFile = None, sink: Sink = None) -> None:
    """List the sink's Iceberg tables: number of snapshots, and files and bytes of the newest.

    Example: tailrace iceberg tables -c tailrace.toml
    """
    work = _maintenance(config, sink)
    print_rows((work.describe(name) for name in chosen_tables(work.store, None)), empty=NO_TABLES)


@iceberg.command("compact")
def iceberg_compact(config: SettingsFile = None, sink: Sink = None, table: TableNames = None) -> None:
    """Merge small files, table by table: reading, and merging into current tables, become faster.

    A stream may write meanwhile. If both change the same files, one of them fails: run the command again.

    Example: tailrace iceberg compact -c tailrace.toml
    """
    work = _maintenance(config, sink)
    print_rows(({"table": name, **work.compact(name)} for name in chosen_tables(work.store, table)), empty=NO_TABLES)


@iceberg.command("expire")
def iceberg_expire(
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


def _delta_store(config: Path | None, name: str | None) -> DeltaStore:
    section = _section(config, name, DeltaSinkSettings, "Delta")
    from tailrace_spark.sinks.delta.store import DeltaStore

    return DeltaStore(section)


def _maintenance(config: Path | None, name: str | None) -> Maintenance:
    section = _section(config, name, IcebergSinkSettings, "Iceberg")
    from tailrace_spark.sinks.iceberg.maintenance import Maintenance
    from tailrace_spark.sinks.iceberg.store import IcebergStore

    return Maintenance(IcebergStore(section))


def _section(config: Path | None, name: str | None, section_type: type[Section], tables: str) -> Section:
    """The sink's section, whose packages are installed. Raises SettingsError for a sink of another type."""
    chosen, section = chosen_sink(settings_of(config), name)
    if not isinstance(section, section_type):
        raise SettingsError(f'sink.{chosen}: type = "{section.type}" has no {tables} tables')
    require_installed(chosen, section)
    return section
