"""The option of every command that reads the settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tailrace_common.settings import Settings, load_settings

SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The settings, TOML. Without it: the defaults. TAILRACE_SECTION__NAME variables win over both.",
        show_default=False,
    ),
]


def settings_of(path: Path | None) -> Settings:
    """The settings of a command's `SettingsFile` option. Raises SettingsError."""
    return load_settings(path, os.environ)
