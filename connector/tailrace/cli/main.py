"""The `tailrace` command: its options, and its sub-commands, of which only the one that runs is loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import typer

from tailrace_common.cli.program import (
    COMMANDS,
    LOGGING,
    Commands,
    FormatOption,
    LevelOption,
    LogFormat,
    LogLevel,
    VersionOption,
    begin,
    mount_entry_points,
    program,
)

HEADINGS: Final = {
    "Run": ("demo", "init", "check", "agent", "stream", "snapshot", "local"),
    "Look": ("tail", "topics", "sinks", "generations", "dead-letters"),
    "Steer": ("drain", "hosts", "offsets", "losses", "parked", "replay", "sink-letters", "compare"),
    "Subscriptions": (
        "server",
        "subscribe",
        "subscriptions",
        "pause",
        "resume",
        "alter",
        "reset",
        "cancel",
        "apply",
        "api-keys",
        "server-meta",
        "sql",
    ),
    "Segment files": ("inspect", "verify", "dump", "schema", "token"),
    "Lakes": ("delta", "iceberg"),
}
OWN: Final = tuple(
    EntryPoint(name, f"tailrace.cli.{value}", COMMANDS)
    for name, value in {
        "agent": "agent:agent",
        "check": "check:check",
        "dead-letters": "cluster.parked:dead_letters",
        "demo": "demo:demo",
        "drain": "drain:drain",
        "dump": "segments.dump:dump",
        "generations": "cluster.generations:app",
        "hosts": "cluster.hosts:app",
        "init": "init:init",
        "inspect": "segments.inspect:inspect",
        "local": "local:app",
        "losses": "cluster.losses:app",
        "offsets": "cluster.offsets:app",
        "parked": "cluster.parked:app",
        "replay": "cluster.replay:replay_",
        "schema": "cluster.schema:app",
        "tail": "cluster.tail:tail",
        "token": "segments.token:token",
        "topics": "cluster.topics:app",
        "verify": "segments.verify:verify",
    }.items()
)
"""The commands of this package. Those of others are entry points, which take a search of all that is installed."""


class Headed(Commands):
    """A program's commands under several headings."""

    def headings(self) -> Iterator[tuple[str, Sequence[str]]]:
        """By `HEADINGS`; what they do not have comes last."""
        named = {name for names in HEADINGS.values() for name in names}
        for heading, names in HEADINGS.items():
            yield heading, [name for name in names if name in self.commands]
        yield "Others", [name for name in self.commands if name not in named]


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


def command_line(points: Iterable[EntryPoint]) -> typer.Typer:
    """The command with these sub-commands, whose modules are imported now."""
    app = program(Headed)
    app.callback()(tailrace)
    mount_entry_points(app, points)
    return app


@cache
def complete() -> typer.Typer:
    """The command with all sub-commands, also those of other packages. To load them takes seconds."""
    return command_line((*OWN, *entry_points(group=COMMANDS)))


def chosen(words: Sequence[str]) -> typer.Typer:
    """The command with what a command line needs: the sub-command that it names, else all, for help and suggestions."""
    name = command_of(words)
    points = [point for point in OWN if point.name == name] or list(entry_points(group=COMMANDS, name=name or ""))
    if points or (name is None and "--version" in words):
        return command_line(points)
    return complete()


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
    chosen(sys.argv[1:])(prog_name="tailrace")
