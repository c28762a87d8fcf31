"""`tailrace subscribe`: asks for a table, or for all that fit a pattern, into a target."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace_common.cli.console import print_json, say
from tailrace_common.cli.options import SettingsFile
from tailrace_server.cli.opening import (
    Columns,
    KeyFile,
    Options,
    ServerUrl,
    SnapshotChoice,
    StreamOptions,
    Unchecked,
    Where,
    operations_of,
    pairs,
    say_notes,
    stream_settings,
    typed_pairs,
)
from tailrace_server.operations.asking import Asked


def subscribe(
    table: Annotated[
        str, typer.Argument(metavar="KEYSPACE.TABLE", help="The table, or a pattern with * and ?: later ones join it.")
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="The subscriber: unique for the table.")],
    target: Annotated[
        str, typer.Option("--target", metavar="TARGET", help="Where to: a [sink.TARGET] of the servers' settings.")
    ],
    option: Options = None,
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
    """Ask for a table into a target, until it is cancelled.

    Any worker of the cluster takes it up. It reads the rows that the tables have, and follows their log. The same
    request again is the same subscription; another one under its name is refused. Everything is checked first.

    Example: tailrace subscribe shop.orders --name orders --target warehouse
    """
    request = Asked(
        table=table,
        name=name,
        target=target,
        options=typed_pairs(option, "--option"),
        where=where,
        columns=pairs(column, "--column"),
        stream=stream_settings(stream, snapshot),
        start=start,
    )
    with operations_of(config, server, key_file) as operations:
        answer, is_new = operations.subscribe(request, check=not unchecked)
    say_notes(answer)
    say(f"{answer['reference']} {'is subscribed' if is_new else 'was subscribed already'}, into {answer['target']}")
    print_json(answer)
