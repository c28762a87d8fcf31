"""The option of every command that reads the settings, and where they are looked for without it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from tailrace_common.settings import Settings, load_settings

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
