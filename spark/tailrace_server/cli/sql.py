"""`tailrace sql`: subscriptions by statements, from the command line, a file, or a pipe."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tailrace_common.cli.console import print_rows
from tailrace_common.cli.options import SettingsFile
from tailrace_schemas.errors import SettingsError
from tailrace_server.cli.opening import Json, KeyFile, ServerUrl, Unchecked, operations_of
from tailrace_server.cli.operating import print_list, print_one
from tailrace_server.operations.answers import Answer
from tailrace_server.sql.parsing import parse
from tailrace_server.sql.running import run
from tailrace_server.sql.statements import One, ShowAll, Statement, Verb


def sql(
    statement: Annotated[
        str | None, typer.Argument(metavar="[STATEMENT]", help="Statements with ; between them.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Run the statements of a file.", show_default=False),
    ] = None,
    unchecked: Unchecked = False,
    config: SettingsFile = None,
    server: ServerUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Create, show and change subscriptions in SQL (docs/subscriptions.md).

    Without a statement: from a file, or from standard input. All statements are read before any is run, and the first
    that fails ends the run.

    Example: tailrace sql "CREATE SUBSCRIPTION orders ON shop.orders INTO warehouse WHERE country = 'DE'"
    """
    if statement is not None and file is not None:
        raise SettingsError("a statement and --file exclude each other")
    text = _text(statement, file)
    with operations_of(config, server, key_file) as operations:
        for parsed in parse(text):
            _print(parsed.statement, run(parsed, operations, check=not unchecked), json=json)


def _text(statement: str | None, file: Path | None) -> str:
    if statement is not None:
        return statement
    if file is None and sys.stdin.isatty():
        raise SettingsError("there is no statement: give one, or a file by --file, or send statements by a pipe")
    try:
        return sys.stdin.read() if file is None else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file or 'standard input'}: cannot be read: {error}") from None


def _print(statement: Statement, rows: list[Answer], *, json: bool) -> None:
    for_people = sys.stdout.isatty() and not json
    if isinstance(statement, ShowAll):
        print_list(rows, json=json)
    elif isinstance(statement, One) and statement.verb is Verb.SHOW:
        print_one(rows[0], json=json)
    elif isinstance(statement, One) and statement.verb is Verb.SHOW_CREATE and for_people:
        typer.echo(f"{rows[0]['statement']};")
    elif for_people:
        print_rows([{name: row[name] for name in ("reference", "state", "sink", "target")} for row in rows])
    else:
        print_rows(rows, always_json=True)
