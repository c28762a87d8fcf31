"""`tailrace subscriptions`, `pause`, `resume`, `alter`, `reset`, `cancel`: what operators do with subscriptions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tailrace_common.cli.console import on_terminal, print_json, print_rows, say
from tailrace_common.cli.options import SettingsFile, Yes, confirm, settings_of
from tailrace_schemas.errors import SettingsError
from tailrace_server.cli.opening import (
    Columns,
    Json,
    KeyFile,
    Options,
    Reference,
    ServerUrl,
    SnapshotChoice,
    StreamOptions,
    Unchecked,
    Where,
    offsets_in,
    opened,
    operations_of,
    pairs,
    say_notes,
    stream_settings,
    typed_pairs,
    who,
)
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.operations import Alteration, DirectOperations
from tailrace_server.sql.parsing import One, ShowAll, Statement, Verb, parse
from tailrace_server.sql.running import run


def subscriptions(
    reference: Annotated[
        str | None,
        typer.Argument(metavar="[SUBSCRIPTION]", help="Show one with its settings and progress.", show_default=False),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Cancelled ones too.")] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Who changed what, the newest first, instead.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="Of --audit: most changes.", min=1)] = 100,
    letters_: Annotated[
        bool, typer.Option("--letters", help="What its sink refused, instead: places in Kafka, and reasons.")
    ] = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="Of --letters: write all again, once their cause is fixed.")
    ] = False,
    config: SettingsFile = None,
    server: ServerUrl = None,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """List subscriptions with their state, and how many records they are behind; or show one.

    `failing` ones say why and what to do, and try again, ever less often. `behind` counts what is in the topics and
    not yet in the sink, `letters` what the sink refused.

    Example: tailrace subscriptions shop.orders/warehouse
    """
    if letters_ or replay:
        if reference is None or not letters_:
            raise SettingsError("--letters is of one subscription, and --replay of --letters: name one, and give both")
        if server is not None:
            raise SettingsError("--letters reads the sink from here, by the meta database: leave out --server")
        _letters(reference, config, replay=replay)
        return
    with operations_of(config, server, key_file) as operations:
        if audit:
            print_rows(operations.audit(reference, limit), always_json=json, empty="no changes yet")
        elif reference is None:
            print_list([dict(row) for row in operations.all(cancelled=all_)], json=json)
        else:
            print_one(operations.details(reference), json=json)


def _letters(reference: str, config: Path | None, *, replay: bool) -> None:
    """List them, or write them again; what is left of them is what everybody is shown from then on.

    Exit code 1 if a replay leaves some.
    """
    from tailrace_server.worker.settings import stream_settings  # other commands need no sinks
    from tailrace_spark.cli.letters import print_letters, replay_all

    settings = settings_of(config)
    with opened(settings) as (_, subscriptions):
        details = DirectOperations(subscriptions, settings, who()).details(reference)
        subscription = subscriptions.get(details["id"])
        chosen, name = stream_settings(settings, subscription, "unused"), subscription.sink_name
        if not replay:
            count = print_letters(name, chosen)
        else:
            done = replay_all(name, chosen)
            count = done.again + done.left
        subscriptions.count_letters(subscription.id, details["letters"], count)
    if replay and count:
        raise typer.Exit(1)


def print_list(rows: list[dict[str, Any]], *, json: bool) -> None:
    """Subscriptions, with fewer columns for people."""
    if on_terminal() and not json:
        columns = ("reference", "state", "stage", "sink", "target", "behind", "letters", "reason", "action")
        rows = [{name: row[name] for name in columns} for row in rows]
    print_rows(rows, always_json=json, empty="no subscriptions; `tailrace subscribe` makes one")


def print_one(details: dict[str, Any], *, json: bool) -> None:
    """One with its settings, and its partitions below."""
    if not on_terminal() or json:
        print_json(details)
        return
    partitions, snapshots = details.pop("partitions"), details.pop("snapshots")
    print_rows([{"what": name, "value": value} for name, value in details.items() if value not in (None, "", {})])
    if snapshots:
        print_rows([{name: row[name] for name in row if name not in ("id", "done", "reading")} for row in snapshots])
    print_rows(partitions, empty="no progress yet")


def pause(
    reference: Reference, config: SettingsFile = None, server: ServerUrl = None, key_file: KeyFile = None
) -> None:
    """Stop a subscription. It keeps its progress, and its topics go on.

    Resume it before the topics' retention ends.

    Example: tailrace pause warehouse
    """
    with operations_of(config, server, key_file) as operations:
        print_json(operations.pause(reference))


def resume(
    reference: Reference, config: SettingsFile = None, server: ServerUrl = None, key_file: KeyFile = None
) -> None:
    """Let a paused subscription go on, or try a failing one at once.

    Example: tailrace resume shop.orders/warehouse
    """
    with operations_of(config, server, key_file) as operations:
        print_json(operations.resume(reference))


def alter(
    reference: Reference,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="Another [sink.TARGET] of the servers' settings, which has what was written so far.",
            show_default=False,
        ),
    ] = None,
    option: Options = None,
    where: Where = None,
    no_where: Annotated[bool, typer.Option("--no-where", help="Without a condition from now on.")] = False,
    column: Columns = None,
    snapshot: SnapshotChoice = None,
    stream: StreamOptions = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Take a setting away: option.NAME, column.NAME or stream.NAME; repeatable."),
    ] = None,
    unchecked: Unchecked = False,
    config: SettingsFile = None,
    server: ServerUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Run a subscription with other settings, from where it is.

    Its worker finishes a batch first. Filters and masks are for what comes from now on: what is in the sink stays.

    Example: tailrace alter warehouse --where "country = 'DE'" --stream trigger_seconds=5
    """
    if where is not None and no_where:
        raise SettingsError("--where and --no-where exclude each other")
    removed = _removed(unset or [])
    with operations_of(config, server, key_file) as operations:
        alteration = Alteration(
            target=target,
            options={**typed_pairs(option, "--option"), **removed["option"]},
            where="" if no_where else where,
            columns={**pairs(column, "--column"), **removed["column"]},
            stream={**stream_settings(stream, snapshot), **removed["stream"]},
        )
        if alteration == Alteration():
            raise SettingsError(
                "nothing to alter: give --target, --option, --where, --column, --snapshot, --stream or --unset"
            )
        answer = operations.alter(reference, alteration, check=not unchecked)
        say_notes(answer)
        print_json(answer)


def _removed(names: list[str]) -> dict[str, dict[str, None]]:
    removed: dict[str, dict[str, None]] = {"option": {}, "column": {}, "stream": {}}
    for word in names:
        kind, dot, name = word.partition(".")
        if kind not in removed or not dot:
            raise SettingsError(f"--unset {word}: must be option.NAME, column.NAME or stream.NAME")
        removed[kind][name] = None
    return removed


def reset(
    reference: Reference,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="START",
            help="Where to read the log from: earliest, latest, or a time (ISO 8601).",
            show_default="earliest; with --snapshot where it is",
        ),
    ] = None,
    snapshot: Annotated[bool, typer.Option("--snapshot", help="Read the rows that the tables have once more.")] = False,
    offsets: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help='Or from these offsets: {"TOPIC": {"PARTITION": OFFSET}}, or a file of that. Other partitions: from '
            "their beginning.",
            show_default=False,
        ),
    ] = None,
    config: SettingsFile = None,
    server: ServerUrl = None,
    key_file: KeyFile = None,
) -> None:
    """Let a subscription read again from another place.

    A merging sink comes out the same by what it is given again. One that keeps each change gets all of it once more.
    Whoever runs it is fenced at once.

    With --snapshot its tables are read again from their first range. What was deleted from them stays in the sink,
    unless the log has the deletion.

    Example: tailrace reset warehouse --from 2026-05-01T12:00:00Z
    """
    with operations_of(config, server, key_file) as operations:
        chosen = None if offsets is None else offsets_in(offsets)
        print_json(operations.reset(reference, start, chosen, snapshot=snapshot))


def cancel(
    reference: Reference,
    yes: Yes = False,
    config: SettingsFile = None,
    server: ServerUrl = None,
    key_file: KeyFile = None,
) -> None:
    """End a subscription for good. Its worker finishes a batch first; what is in the sink stays.

    Example: tailrace cancel shop.orders/warehouse --yes
    """
    with operations_of(config, server, key_file) as operations:
        details = operations.details(reference)
        confirm(f"Cancel {details['reference']} into {details['target']}?", yes)
        answer = operations.cancel(details["reference"])
    say(f"{answer['reference']} is cancelled; {answer['target']} keeps what it has")
    print_json(answer)


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
