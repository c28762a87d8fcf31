"""Options that several commands share."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from tailrace_common.cli.console import say
from tailrace_schemas.errors import SettingsError

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def existing_file(help: str) -> Any:
    """An option that names a file which is there; typer does not make the class of options public."""
    return typer.Option(metavar="FILE", exists=True, dir_okay=False, help=help)


def existing_directory(help: str) -> Any:
    """An option that names a directory which is there."""
    return typer.Option(metavar="DIR", exists=True, file_okay=False, help=help)


def confirm(question: str, yes: bool) -> None:
    """Ask on the terminal, unless `yes` was given; end the command with exit code 1 on a no.

    Raises SettingsError where there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise SettingsError(f"{question} There is no terminal to ask on: give --yes")
    if not typer.confirm(question, err=True):
        say("nothing was changed")
        raise typer.Exit(1)
