"""`tailrace sql`: subscriptions by statements, from the command line, a file, a pipe, or a prompt."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

from tailrace_common.cli.console import print_rows, say
from tailrace_common.cli.options import SettingsFile
from tailrace_schemas.errors import SettingsError, TailraceError
from tailrace_server.cli.opening import Json, KeyFile, ServerUrl, Unchecked, operations_of
from tailrace_server.cli.operating import print_list, print_one
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.operations import Operations
from tailrace_server.sql.parsing import is_complete, parse
from tailrace_server.sql.running import run
from tailrace_server.sql.statements import One, ShowAll, Statement, Verb

_PROMPT: Final = "tailrace> "
_MORE: Final = "      ... "
_ENDS: Final = ("exit", "quit", "exit;", "quit;")
_HELP: Final = """\
CREATE SUBSCRIPTION name ON keyspace.table INTO target [OPTIONS (...)] [COLUMNS (...)] [WHERE ...];
SHOW SUBSCRIPTIONS [LIKE 'pattern'];            SHOW [CREATE] SUBSCRIPTION name;
PAUSE SUBSCRIPTION name;                        RESUME SUBSCRIPTION name;
ALTER SUBSCRIPTION name SET (option = 'value'); RESET SUBSCRIPTION name FROM EARLIEST;
DROP SUBSCRIPTION name;
Statements end with ;  Ctrl-C forgets what is typed, Ctrl-D leaves. All clauses: docs/subscriptions.md"""


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

    Without a statement: from standard input, and on a terminal from a prompt. All statements are read before any is
    run, and the first that fails ends the run.

    Example: tailrace sql "CREATE SUBSCRIPTION orders ON shop.orders INTO warehouse WHERE country = 'DE'"
    """
    if statement is not None and file is not None:
        raise SettingsError("a statement and --file exclude each other")
    with operations_of(config, server, key_file) as operations:
        if statement is None and file is None and sys.stdin.isatty():
            _prompt(operations, check=not unchecked, json=json)
        else:
            _run_all(_text(statement, file), operations, check=not unchecked, json=json)


def _text(statement: str | None, file: Path | None) -> str:
    if statement is not None:
        return statement
    try:
        return sys.stdin.read() if file is None else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file or 'standard input'}: cannot be read: {error}") from None


def _run_all(text: str, operations: Operations, *, check: bool, json: bool) -> None:
    for parsed in parse(text):
        _print(parsed.statement, run(parsed, operations, check=check), json=json)


def _prompt(operations: Operations, *, check: bool, json: bool) -> None:
    """Statements line by line, each up to its `;`. Ctrl-C forgets the lines so far, Ctrl-D leaves."""
    with suppress(ImportError):
        import readline  # noqa: F401 - gives `input` its line editing, where Python has it
    say("Statements end with ;  `help` lists them, Ctrl-D leaves.")
    while (text := _statement(input)) is not None:
        try:
            _run_all(text, operations, check=check, json=json)
        except TailraceError as error:
            say(str(error))


def _statement(read: Callable[[str], str]) -> str | None:
    """The lines of a statement; None where there are no more."""
    text = ""
    while True:
        try:
            line = read(_MORE if text else _PROMPT)
        except KeyboardInterrupt:
            say("")
            text = ""
            continue
        except EOFError:
            say("")
            return None
        if not text and line.strip().lower() in _ENDS:
            return None
        if not text and line.strip().lower().rstrip(";") == "help":
            say(_HELP)
            continue
        text = f"{text}{line}\n" if text or line.strip() else ""
        if is_complete(text):
            return text


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
