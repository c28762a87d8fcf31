"""`tailrace subscribe`: asks for a table, or for all that fit a pattern, into a sink."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tailrace_common.cli.console import print_json, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_server.cli.opening import (
    Columns,
    KeyFile,
    ServerUrl,
    SinkOptions,
    SnapshotChoice,
    StreamOptions,
    Unchecked,
    Where,
    operations_of,
    pairs,
    say_notes,
    stream_settings,
    tree_of,
    typed,
    with_secrets,
)
from tailrace_server.operations.asking import Asked, secret_names
from tailrace_server.operations.sections import revealed


def subscribe(
    table: Annotated[
        str, typer.Argument(metavar="KEYSPACE.TABLE", help="The table, or a pattern with * and ?: later ones join it.")
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The subscriber: unique for the table.")],
    sink: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Take the settings of [sink.NAME] of the settings file.", show_default=False),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE", help="The type of the sink (`tailrace sinks`).", show_default=False),
    ] = None,
    option: SinkOptions = None,
    where: Where = None,
    column: Columns = None,
    snapshot: SnapshotChoice = None,
    stream: StreamOptions = None,
    start: Annotated[
        str, typer.Option("--from", metavar="START", help="Where to begin: earliest, latest, or a time (ISO 8601).")
    ] = "earliest",
    unchecked: Unchecked = False,
    config: SettingsFile = None,
    server: ServerUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Ask for a table into a sink, until it is cancelled.

    Any worker of the cluster takes it up. It reads the rows that the tables have, and follows their log. The same
    request again is the same subscription; another one under its name is refused. Everything is checked first, and
    secrets are sealed.

    Example: tailrace subscribe shop.orders --name warehouse --type sql -o url_file=/run/secrets/warehouse
    """
    settings = settings_of(config) if server is None or sink is not None else None
    section = _section(settings, sink, kind, pairs(option, "--option"))
    request = Asked(
        table=table,
        name=name,
        sink=section if server is None else with_secrets(section),
        where=where,
        columns=pairs(column, "--column"),
        stream=stream_settings(stream, snapshot),
        start=start,
    )
    with operations_of(config, server, key_file, settings) as operations:
        answer, is_new = operations.subscribe(request, check=not unchecked)
    say_notes(answer)
    say(f"{answer['reference']} {'is subscribed' if is_new else 'was subscribed already'}, into {answer['target']}")
    print_json(answer)


def _section(settings: Settings | None, sink: str | None, kind: str | None, options: dict[str, str]) -> dict[str, Any]:
    """The sink's section: of the settings file, or of this command line."""
    if (sink is None) == (kind is None):
        raise SettingsError("one of --sink NAME (a [sink.NAME] of the settings file) and --type TYPE is needed")
    section = {} if sink is None or settings is None else section_named(settings, sink)
    section["type"] = kind = kind or section["type"]
    require_no_secrets(kind, options)
    return {**section, **tree_of(typed(options))}


def section_named(settings: Settings, sink: str) -> dict[str, Any]:
    """A [sink.NAME] of the settings file, with its secrets. Raises SettingsError."""
    if sink not in settings.sink:
        raise SettingsError(f"there is no [sink.{sink}] in the settings; set: {', '.join(settings.sink) or 'none'}")
    return {"type": settings.sink[sink].type, **revealed(settings.sink[sink])}


def require_no_secrets(kind: str, options: dict[str, str]) -> None:
    """Others of the machine see the arguments of a command. Raises SettingsError."""
    for name in secret_names(kind, options):
        raise SettingsError(
            f"--option {name}: is a secret, which others see among the arguments of a process; put it into a file, "
            f"and name that: -o {name}_file=FILE"
        )
