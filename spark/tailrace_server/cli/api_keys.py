"""`tailrace api-keys`: who may ask the HTTP API for what."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace_common.cli.console import print_rows, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_server.cli.opening import Json, opened, who
from tailrace_server.meta.credentials import ApiKeys, Role
from tailrace_server.meta.subscriptions import record
from tailrace_server.model.subscription import require_name
from tailrace_server.operations.answers import time_of

app = typer.Typer(
    no_args_is_help=True,
    help="Keys of the HTTP API, in the meta database.\n\nExample: tailrace api-keys add ci --role operate",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the key, which the audit shows.")]


@app.command("add")
def add(
    name: Name,
    role: Annotated[
        Role, typer.Option(help="read; operate: change subscriptions too; admin: see the audit too.")
    ] = Role.OPERATE,
    config: SettingsFile = None,
) -> None:
    """Make a key, and print it. It is shown this once: the meta database has a digest of it.

    Example: tailrace api-keys add ci --role operate > ci.key
    """
    settings = settings_of(config)
    with opened(settings) as (database, _):
        key = ApiKeys(database).add(require_name(name), role)
        record(database, who(), "add key", name, {"role": str(role)})
    say(f"the key {name} may {role}; it is not shown again")
    typer.echo(key)


@app.command("list")
def list_(config: SettingsFile = None, json: Json = False) -> None:
    """List the keys by name, with their roles.

    Example: tailrace api-keys list
    """
    with opened(settings_of(config)) as (database, _):
        rows = [{**key, "created": time_of(key["created"])} for key in ApiKeys(database).all()]
    print_rows(rows, always_json=json, empty="no keys; `tailrace api-keys add` makes one")


@app.command("revoke")
def revoke(name: Name, config: SettingsFile = None) -> None:
    """Refuse a key from now on.

    Example: tailrace api-keys revoke ci
    """
    with opened(settings_of(config)) as (database, _):
        ApiKeys(database).revoke(name)
        record(database, who(), "revoke key", name, None)
    say(f"the key {name} is refused from now on")
