"""`tailrace server-meta`: the meta database in a file, and back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from tailrace_common.cli.console import say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_schemas.errors import SettingsError
from tailrace_server.cli.opening import opened, who
from tailrace_server.meta.backup import lines_of, restore
from tailrace_server.meta.subscriptions import record

app = typer.Typer(
    no_args_is_help=True,
    help="The meta database of subscriptions as a file.\n\nExample: tailrace server-meta backup meta.jsonl",
)


@app.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to: a new file, or - for standard output.")],
    config: SettingsFile = None,
) -> None:
    """Write subscriptions with their progress, API keys and the audit into a file, as of one moment.

    Servers may run meanwhile.

    Example: tailrace server-meta backup meta.jsonl
    """
    settings = settings_of(config)
    with opened(settings) as (database, _):
        if str(file) == "-":
            for line in lines_of(database):
                typer.echo(line)
            return
        _write(file, lines_of(database))
    say(f"{database.location} is in {file}")


def _write(file: Path, lines: Iterable[str]) -> None:
    new = file.with_name(f".{file.name}.new")
    try:
        if file.exists():
            raise SettingsError(f"{file}: exists; remove it, or name another file")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(file)
    except OSError as error:
        raise SettingsError(f"{file}: cannot be written: {error.strerror}") from None


@app.command("restore")
def restore_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `backup`; - is standard input.")],
    replace: Annotated[bool, typer.Option("--replace", help="Delete first what the meta database has.")] = False,
    config: SettingsFile = None,
) -> None:
    """Fill the meta database of the settings, of whichever kind, all or nothing.

    It has to be empty. With --replace running workers lose what they run, and claim it again.

    Example: tailrace server-meta restore meta.jsonl
    """
    settings = settings_of(config)
    with opened(settings) as (database, _):
        counts = restore(database, _lines(file), replace=replace)
        record(database, who(), "restore", str(file), counts)
    say(f"{counts.get('subscribe', 0)} subscriptions are restored into {database.location}")


def _lines(file: Path) -> list[str]:
    """Not by `splitlines`: it ends a line at signs that JSON has within texts."""
    try:
        if str(file) == "-":
            return sys.stdin.readlines()
        with file.open(encoding="utf-8") as stream:
            return stream.readlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {error}") from None
