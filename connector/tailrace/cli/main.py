"""The `tailrace` command: its options, its sub-commands, and how errors become messages and exit codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Final

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
from tailrace.cli.groups import LOGGING, Headed, Listing, logging_first
from tailrace.cli.init import init
from tailrace.cli.local import app as local
from tailrace.cli.segments.dump import dump
from tailrace.cli.segments.inspect import inspect
from tailrace.cli.segments.token import token
from tailrace.cli.segments.verify import verify
from tailrace_common.build import describe, require_fresh
from tailrace_common.cli.console import say
from tailrace_common.cli.logs import logs_json, set_up_logging
from tailrace_schemas.errors import SettingsError, TailraceError

ENTRY_POINTS: Final = "tailrace.commands"


class LogFormat(StrEnum):
    """How log lines look."""

    HUMAN = "human"
    JSON = "json"


_LOG: Final = logging.getLogger("tailrace")


class LogLevel(StrEnum):
    """From which weight on events are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Commands(Headed):
    """The command group: an error of ours is its message on stderr and its exit code, never a traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the options of logging wherever they stand."""
        parsed: list[str] = super().parse_args(ctx, logging_first(args))
        return parsed

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command. `ctx` is typer's context, whose class typer does not make public."""
        try:
            return super().invoke(ctx)
        except TailraceError as error:
            for line in str(error).splitlines() or [type(error).__name__]:
                if logs_json():
                    _LOG.error("%s", line)
                else:
                    say(f"tailrace: {line}")
            raise typer.Exit(error.exit_code) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # help texts speak of [sections] in brackets
    pretty_exceptions_enable=False,  # they show local variables, and so secrets
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(describe())
        raise typer.Exit


@app.callback()
def tailrace(
    log_level: Annotated[
        LogLevel, typer.Option(envvar="TAILRACE_LOG_LEVEL", help="Log level: the least severe events that are logged.")
    ] = LogLevel.INFO,
    log_format: Annotated[
        LogFormat, typer.Option(envvar="TAILRACE_LOG_FORMAT", help="Log for people, or as JSON lines.")
    ] = LogFormat.HUMAN,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version and active code.")
    ] = False,
) -> None:
    """Change feeds from Apache Cassandra's commit log, through Kafka and Spark.

    Data goes to stdout (JSON lines when piped), words and log to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage
    or settings, 3 something was quarantined, 4 data loss found, 5 fenced by another agent. --log-level and --log-format
    may stand behind the command, too.

    Example: tailrace demo
    """
    require_fresh()
    set_up_logging(log_level, json_lines=log_format is LogFormat.JSON, stream=sys.stderr)


def _missing(point: EntryPoint, cause: ImportError) -> Callable[[], None]:
    """A stand-in for a command whose package is not installed: it says what to install."""
    package = point.module.partition(".")[0]
    extra = f"[{package.removeprefix('tailrace_')}]" if package.startswith("tailrace_") else ""

    def command() -> None:
        raise SettingsError(f"{point.name} needs {cause.name or cause}: pip install 'tailrace{extra}'")

    command.__doc__ = f"(not installed: pip install 'tailrace{extra}')\n\nExample: tailrace {point.name}"
    return command


def mount_entry_points(group: typer.Typer, points: Iterable[EntryPoint]) -> None:
    """Add the commands that other packages announce: each entry point is a function or a Typer."""
    for point in sorted(points, key=lambda point: point.name):
        try:
            command = point.load()
        except ImportError as cause:
            lenient = {"ignore_unknown_options": True, "allow_extra_args": True}
            group.command(point.name, context_settings=lenient)(_missing(point, cause))
            continue
        if isinstance(command, typer.Typer):
            group.add_typer(command, name=point.name, cls=Listing)
        else:
            group.command(point.name)(command)


app.command("demo")(demo)
app.command("init")(init)
app.command("agent")(agent)
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
    mount_entry_points(app, entry_points(group=ENTRY_POINTS))
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
