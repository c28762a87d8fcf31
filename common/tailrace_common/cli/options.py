"""Options of commands of both halves: the settings, which are looked for without theirs, and the yes to a question."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from tailrace_common.cli.console import say
from tailrace_common.settings import Settings, load_settings
from tailrace_schemas.errors import SettingsError

FIRST_PLACE: Final = Path("tailrace.toml")
PLACES: Final = (FIRST_PLACE, Path("/etc/tailrace/tailrace.toml"))
VARIABLE: Final = "TAILRACE_CONFIG"
_LOG: Final = logging.getLogger("tailrace.settings")

SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The settings, TOML. Without it: ./tailrace.toml, else /etc/tailrace/tailrace.toml, else the file that "
        "TAILRACE_CONFIG names, else the defaults. TAILRACE_SECTION__NAME variables win over all.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def settings_of(path: Path | None) -> Settings:
    """The settings of a command's `SettingsFile` option; which file they are of is logged. Raises SettingsError."""
    used = path or settings_file(os.environ)
    settings = load_settings(used, os.environ)
    _LOG.log(logging.INFO if path is None else logging.DEBUG, "settings: %s", used or _NONE)
    return settings


def settings_file(environ: Mapping[str, str], paths: Sequence[Path] = PLACES) -> Path | None:
    """The first of `paths` that exists, else the file of TAILRACE_CONFIG; None where that is unset too."""
    named = environ.get(VARIABLE)
    for path in paths:
        if _is_there(path):
            if named and Path(named).absolute() != path.absolute():
                _LOG.warning("%s=%s is ignored: %s exists and takes precedence", VARIABLE, named, path)
            return path
    return Path(named) if named else None


def _is_there(path: Path) -> bool:
    """Whether a file is there, or may be: one in a directory that this user may not enter is not passed over."""
    try:
        return path.exists()
    except OSError:
        return True


_NONE: Final = f"the defaults, for there is no {', no '.join(map(str, PLACES))} and no {VARIABLE}"


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
