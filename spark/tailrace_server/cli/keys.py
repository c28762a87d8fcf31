"""`tailrace server-key`: the keys that seal the secrets of sinks."""

from __future__ import annotations

import typer

from tailrace_common.cli.console import say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_server.cli.opening import opened
from tailrace_server.sealing import Sealer

app = typer.Typer(
    no_args_is_help=True,
    help="The keys that seal the secrets of sinks in the meta database.\n\nExample: tailrace server-key new",
)


@app.command("new")
def new(config: SettingsFile = None) -> None:
    """Add a key to server.key_file, which opens and does not seal yet. Then copy the file to every server.

    Example: tailrace server-key new
    """
    settings = settings_of(config)
    sealer = Sealer(settings.server.key_file)
    if not sealer.exists:
        sealer.make()
        say(f"{settings.server.key_file} is made, with its first key")
        return
    sealer.add()
    say(f"{settings.server.key_file} has a new key; copy it to every server, then run `tailrace server-key use`")


@app.command("use")
def use(config: SettingsFile = None) -> None:
    """Seal with the newest key from now on, seal all secrets again with it, and forget the older keys.

    Every server must have the file of `server-key new` before.

    Example: tailrace server-key use
    """
    settings = settings_of(config)
    sealer = Sealer(settings.server.key_file)
    with opened(settings) as (_, subscriptions):
        sealer.use_newest()
        count = subscriptions.reseal()
        sealer.keep_first()
    say(f"{count} subscriptions are sealed with the newest key, the only one left in {settings.server.key_file}")
