"""`tailrace schema export`: the schema file that `dump --schema` and `parked retry --schema` read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tailrace.assembly.replay_targets import history_records
from tailrace.assembly.schema_file import chosen_rows, lines_of, lines_of_cluster, rows_of_history
from tailrace.cli.support.records import Host, chosen_host
from tailrace_common.cli.console import say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, SettingsError

app = typer.Typer(
    no_args_is_help=True,
    help="Export table definitions to a file, for commands that read segments.\n\n"
    "Example: tailrace schema export > schema.jsonl",
)


@app.callback()
def schema() -> None:
    """A group of its own, though it has one command: its help is the group's."""


@app.command()
def export(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEYSPACE.TABLE]...",
            help="Only these: KEYSPACE.TABLE, KEYSPACE.*, or a table's id. Without them, all tables.",
            show_default=False,
        ),
    ] = None,
    config: SettingsFile = None,
    history: Annotated[
        bool,
        typer.Option(
            "--history", help="Read the host's schema history in Kafka: the last definitions, dropped tables included."
        ),
    ] = False,
    host: Host = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a new file instead of stdout.", show_default=False),
    ] = None,
) -> None:
    """Write the rows of system_schema that define tables, as JSON lines (docs/raw-dump.md).

    They are read from the cluster of the settings. With --history they come from Kafka, and with --host no cluster is
    needed.

    Example: tailrace schema export shop.orders -o schema.jsonl
    """
    settings, names = settings_of(config), tables or []
    if host is not None and not history:
        raise SettingsError("--host ID goes with --history: each host has a history of its own")
    lines = _history_lines(settings, host, names) if history else lines_of_cluster(settings, names)
    if output is None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise SettingsError(f"--output {output}: {error.strerror}; name a new file") from None
    say(f"{output}: {len(lines)} rows written")


def _history_lines(settings: Settings, host: str | None, names: list[str]) -> list[str]:
    if host is None:
        host = chosen_host(settings, None)[0].host
    rows = rows_of_history(history_records(settings.kafka.reveal(), settings.topics.prefix, host), names)
    if not rows:
        raise ServiceError(f"the schema history under {settings.topics.prefix} has nothing of host {host}")
    return list(lines_of(chosen_rows(rows, names), ()))
