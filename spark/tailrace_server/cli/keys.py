"""`tailrace server-key`: the key that seals what browsers keep of those who have signed in."""

from __future__ import annotations

import typer

from tailrace_common.cli.console import say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_server.sealing import Sealer

app = typer.Typer(
    no_args_is_help=True,
    help="The key that seals the sessions of the page.\n\nExample: tailrace server-key new",
)


@app.callback()
def keys() -> None:
    """The key that seals the sessions of the page.

    Example: tailrace server-key new
    """


@app.command("new")
def new(config: SettingsFile = None) -> None:
    """Make server.key_file, unless it is there. Copy it to every server; with another one all sign in again.

    Example: tailrace server-key new
    """
    file = settings_of(config).server.key_file
    say(f"{file} {'is made' if Sealer(file).make() else 'is there already'}")
