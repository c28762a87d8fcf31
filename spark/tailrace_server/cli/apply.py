"""`tailrace subscribe`: asks for a table, or for all that fit a pattern; `tailrace apply`: for what a file declares."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tailrace_common.cli.console import print_json, print_rows, say
from tailrace_common.cli.options import SettingsFile
from tailrace_schemas.errors import SettingsError
from tailrace_server.cli.opening import (
    Columns,
    Json,
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
from tailrace_server.model.subscription import SNAPSHOT
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import Operations

_NAMES: Final = (*(field.name for field in fields(Asked)), SNAPSHOT, "state")
_STATES: Final = ("active", "paused")


@dataclass(frozen=True, slots=True)
class Declared:
    """A subscription of the file, and whether it is to run."""

    asked: Asked
    state: str


def apply(
    file: Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="The wanted subscriptions, TOML.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Cancel subscriptions that the file does not have.")] = False,
    unchecked: Unchecked = False,
    config: SettingsFile = None,
    server: ServerUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Make subscriptions what a file says, and show first what that changes.

    All of the file is checked before anything is changed. The same file again changes nothing. `start` counts for new
    subscriptions only.

    Example: tailrace apply -f subscriptions.toml --dry-run
    """
    with operations_of(config, server, key_file) as operations:
        declared = declared_in(file)
        rows = plan(operations, declared, prune=prune, check=not unchecked)
        print_rows(rows, always_json=json, empty="nothing to change")
        if dry_run or not rows:
            return
        carry_out(operations, declared, rows, check=not unchecked)
    say(f"{len(rows)} changed")


def plan(operations: Operations, declared: list[Declared], *, prune: bool, check: bool = True) -> list[Answer]:
    """What has to change, a row each: reference, change, differences. Raises as the operations do."""
    rows: list[Answer] = []
    for item in declared:
        answer = operations.declare(item.asked, dry_run=True, check=check)
        state = answer["state"] or "active"
        if answer["change"] != "none":
            rows.append({name: answer[name] for name in ("reference", "change", "differences")})
        # Nothing runs one that is done, and it cannot be paused; altered it is active again.
        if (state == "paused") != (item.state == "paused") and (state, answer["change"]) != ("done", "none"):
            operation = "pause" if item.state == "paused" else "resume"
            rows.append({"reference": answer["reference"], "change": operation, "differences": []})
    if prune:
        references = {f"{item.asked.table}/{item.asked.name}" for item in declared}
        existing = [str(answer["reference"]) for answer in operations.all()]
        surplus = [reference for reference in existing if reference not in references]
        rows += [{"reference": reference, "change": "cancel", "differences": []} for reference in surplus]
    return rows


def carry_out(operations: Operations, declared: list[Declared], rows: list[Answer], *, check: bool = True) -> None:
    """Do what was planned."""
    by_reference = {f"{item.asked.table}/{item.asked.name}": item for item in declared}
    for row in rows:
        reference = str(row["reference"])
        match row["change"]:
            case "subscribe" | "alter":
                item = by_reference[reference]
                operations.declare(item.asked, check=check, paused=item.state == "paused")
            case "pause":
                operations.pause(reference)
            case "resume":
                operations.resume(reference)
            case "cancel":
                operations.cancel(reference)


def declared_in(file: Path) -> list[Declared]:
    """The subscriptions of a file. Raises SettingsError, which names the place and the nearest name."""
    try:
        tree = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: not TOML: {error}") from None
    tables = tree.pop("subscription", [])
    if tree or not isinstance(tables, list):
        raise SettingsError(f"{file}: must have [[subscription]] tables alone, not {', '.join(tree) or 'a table'}")
    declared = [_declared(f"{file}, subscription {index}", table) for index, table in enumerate(tables, 1)]
    references = [(item.asked.table, item.asked.name) for item in declared]
    for table, name in references:
        if references.count((table, name)) > 1:
            raise SettingsError(f"{file}: {table}/{name} is declared twice")
    return declared


def _declared(source: str, table: dict[str, Any]) -> Declared:
    for name in table:
        if name not in _NAMES:
            close = difflib.get_close_matches(name, _NAMES, n=1)
            hint = f"did you mean {close[0]}?" if close else f"valid names: {', '.join(_NAMES)}"
            raise SettingsError(f"{source}: unknown name {name}; {hint}")
    for name in ("table", "name", "target"):
        if not isinstance(table.get(name), str):
            raise SettingsError(f"{source}: {name} is missing, or is no text")
    for name in ("options", "columns", "stream"):
        if not isinstance(table.get(name, {}), Mapping):
            raise SettingsError(f"{source}: {name} must be a table")
    state = table.pop("state", "active")
    if state not in _STATES:
        raise SettingsError(f'{source}: state must be "active" or "paused", not {state!r}')
    if SNAPSHOT in table:
        table["stream"] = {**table.get("stream", {}), SNAPSHOT: table.pop(SNAPSHOT)}
    return Declared(Asked(**table), state)


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
