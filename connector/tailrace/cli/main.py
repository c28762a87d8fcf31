"""The `tailrace` command: its options and its sub-commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Final

import typer

from tailrace.cli.agent import agent
from tailrace.cli.check import check
from tailrace.cli.cluster.dead_letters import dead_letters
from tailrace.cli.cluster.generations import app as generations
from tailrace.cli.cluster.hosts import app as hosts
from tailrace.cli.cluster.losses import app as losses
from tailrace.cli.cluster.offsets import app as offsets
from tailrace.cli.cluster.offsets_restore import restore
from tailrace.cli.cluster.parked import app as parked
from tailrace.cli.cluster.replay import replay_
from tailrace.cli.cluster.schema import app as schema
from tailrace.cli.cluster.tail import tail
from tailrace.cli.cluster.topics import app as topics
from tailrace.cli.demo import demo
from tailrace.cli.drain import drain
from tailrace.cli.groups import Headed
from tailrace.cli.init import init
from tailrace.cli.local import app as local
from tailrace.cli.segments.dump import dump
from tailrace.cli.segments.inspect import inspect
from tailrace.cli.segments.token import token
from tailrace.cli.segments.verify import verify
from tailrace_common.cli.program import (
    COMMANDS,
    LOGGING,
    FormatOption,
    LevelOption,
    Listing,
    LogFormat,
    LogLevel,
    VersionOption,
    begin,
    mount_entry_points,
    program,
)

app = program(Headed)


@app.callback()
def tailrace(
    log_level: LevelOption = LogLevel.INFO,
    log_format: FormatOption = LogFormat.HUMAN,
    version: VersionOption = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Change feeds from Apache Cassandra's commit log, through Kafka and Spark.

    Data goes to stdout (JSON lines when piped), messages and log to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage
    or settings, 3 quarantined or dead-lettered, 4 data loss found, 5 fenced by another agent. --log-level and
    --log-format may also follow the command.

    Example: tailrace demo
    """
    begin(log_level, log_format)


app.command("demo")(demo)
app.command("init")(init)
app.command("agent")(agent)
app.command("drain")(drain)
app.add_typer(local, name="local", cls=Listing)
app.command("inspect")(inspect)
app.command("dump")(dump)
app.add_typer(schema, name="schema", cls=Listing)
app.command("verify")(verify)
app.command("replay")(replay_)
app.command("tail")(tail)
app.command("token")(token)
app.add_typer(generations, name="generations", cls=Listing)
offsets.command("restore")(restore)
app.add_typer(offsets, name="offsets", cls=Listing)
app.add_typer(hosts, name="hosts", cls=Listing)
app.add_typer(losses, name="losses", cls=Listing)
app.add_typer(topics, name="topics", cls=Listing)
app.add_typer(parked, name="parked", cls=Listing)
app.command("dead-letters")(dead_letters)
app.command("check")(check)
OWN: Final = frozenset(
    [str(one.name) for one in app.registered_commands] + [str(one.name) for one in app.registered_groups]
)


@cache
def complete() -> typer.Typer:
    """The command with those of other packages. To load them takes more time, and memory, than an agent needs."""
    mount_entry_points(app, entry_points(group=COMMANDS))
    return app


def command_of(words: Sequence[str]) -> str | None:
    """The sub-command among the words of a command line; None where there is none."""
    rest = iter(words)
    for word in rest:
        if word in LOGGING:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return None


def run() -> None:
    """The console script."""
    chosen = app if command_of(sys.argv[1:]) in OWN else complete()
    chosen(prog_name="tailrace")
