"""What a program of ours is made of: its group of commands, its options of logging, its errors as exit codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from importlib.metadata import EntryPoint
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from tailrace_common.build import describe_for_people, require_fresh
from tailrace_common.cli.console import say, settle_output
from tailrace_common.cli.logs import logs_json, set_up_logging
from tailrace_schemas.errors import SettingsError, TailraceError

COMMANDS: Final = "tailrace.commands"
"""The entry points by which packages announce their commands."""

LOGGING: Final = ("--log-level", "--log-format")
_LOG: Final = logging.getLogger("tailrace")


class LogFormat(StrEnum):
    """How log lines look."""

    HUMAN = "human"
    JSON = "json"


class LogLevel(StrEnum):
    """From which weight on events are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Listing(TyperGroup):
    """A group of commands whose help cuts no summary."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Each command's name and first sentence. `ctx` and `formatter` are typer's, whose classes are not public."""
        for heading, names in self.headings():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(name, command.get_short_help_str(limit=1000)) for name, command in commands if command]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def headings(self) -> Iterator[tuple[str, Sequence[str]]]:
        """The commands' names by heading."""
        yield "Commands", list(self.commands)


class Commands(Listing):
    """A program's commands: an error of ours is its message on stderr and its exit code, never a traceback."""

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


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(describe_for_people())
        raise typer.Exit


LevelOption = Annotated[
    LogLevel, typer.Option(envvar="TAILRACE_LOG_LEVEL", help="Log level: the least severe events that are logged.")
]
FormatOption = Annotated[
    LogFormat, typer.Option(envvar="TAILRACE_LOG_FORMAT", help="Log for people, or as JSON lines.")
]
VersionOption = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show version and active code.")
]


def program(group: type[Commands] = Commands) -> typer.Typer:
    """A program without commands yet; its callback has the options of logging and calls `begin`."""
    return typer.Typer(
        cls=group,
        no_args_is_help=True,
        rich_markup_mode=None,  # help texts speak of [sections] in brackets
        pretty_exceptions_enable=False,  # they show local variables, and so secrets
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def begin(level: LogLevel, form: LogFormat) -> None:
    """What every program does first: it refuses compiled code of other sources, settles stdout, and logs to stderr."""
    require_fresh()
    settle_output(sys.stdout)
    set_up_logging(level, json_lines=form is LogFormat.JSON, stream=sys.stderr)


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


def logging_first(words: Sequence[str]) -> list[str]:
    """A command line with the options of logging moved to its front; what follows `--` stays as it is."""
    first: list[str] = []
    remaining: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            remaining += [word, *rest]
        elif word in LOGGING:
            first += [word, *([value] if (value := next(rest, None)) is not None else [])]
        elif word.partition("=")[0] in LOGGING:
            first.append(word)
        else:
            remaining.append(word)
    return first + remaining


def _missing(point: EntryPoint, cause: ImportError) -> Callable[[], None]:
    """A stand-in for a command whose package is not installed: it says what to install."""
    package = point.module.partition(".")[0]
    extra = f"[{package.removeprefix('tailrace_')}]" if package.startswith("tailrace_") else ""

    def command() -> None:
        raise SettingsError(f"{point.name} needs {cause.name or cause}: pip install 'tailrace{extra}'")

    command.__doc__ = f"(not installed: pip install 'tailrace{extra}')\n\nExample: tailrace {point.name}"
    return command
