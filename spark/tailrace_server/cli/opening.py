"""What the commands of subscriptions share: their options, and the operations that they ask for."""

from __future__ import annotations

import getpass
import json
import socket
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tailrace_common.cli.options import settings_of
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.operations.operations import DirectOperations, Operations
from tailrace_server.sealing import Sealer

Reference = Annotated[
    str, typer.Argument(metavar="SUBSCRIPTION", help="KEYSPACE.TABLE/NAME, or its name where that is the only one.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON lines on a terminal too.")]
Where = Annotated[
    str | None,
    typer.Option(metavar="CONDITION", help="Which changes the sink is given (docs/shaping.md).", show_default=False),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME=TREATMENT",
        help='What the sink sees of a column: drop, mask, hash or "rename NAME"; repeatable.',
    ),
]
StreamOptions = Annotated[
    list[str] | None,
    typer.Option("--stream", metavar="NAME=VALUE", help="A setting of [stream] for this one alone; repeatable."),
]
SinkOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="A setting of the sink; repeatable. A secret goes into a file: -o url_file=/run/secrets/url.",
    ),
]


@contextmanager
def opened(settings: Settings) -> Iterator[tuple[MetaDatabase, Subscriptions]]:
    """The meta database of the settings, with its tables."""
    with MetaDatabase(settings.server.url.get_secret_value()) as database:
        database.prepare()
        yield database, Subscriptions(database, Sealer(settings.server.key_file))


@contextmanager
def operations_of(config: Path | None) -> Iterator[Operations]:
    """The operations on the meta database of the settings."""
    settings = settings_of(config)
    with opened(settings) as (_, subscriptions):
        yield DirectOperations(subscriptions, settings, who())


def who() -> str:
    """Who runs this command, for the audit."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user: a container's
        user = "?"
    return f"{user}@{socket.gethostname()}"


def pairs(words: Sequence[str] | None, option: str) -> dict[str, str]:
    """NAME=VALUE words. Raises SettingsError."""
    values: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise SettingsError(f"{option} {word}: must be NAME=VALUE")
        values[name] = value
    return values


def typed(values: dict[str, str]) -> dict[str, Any]:
    """Values of a command line as TOML reads them, so that 5 is a number and true is true; else they stay text."""
    return {name: _typed(value) for name, value in values.items()}


def _typed(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def tree_of(values: dict[str, Any]) -> dict[str, Any]:
    """Dotted names as tables in tables: `registry.url` is `url` of `registry`."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *above, last = name.split(".")
        node = tree
        for step in above:
            node = node.setdefault(step, {})
        node[last] = value
    return tree


def offsets_of(text: str) -> dict[tuple[str, int], int]:
    """{"TOPIC": {"PARTITION": OFFSET}}, as JSON or in a file of that. Raises SettingsError."""
    try:
        content = text if text.lstrip().startswith("{") else Path(text).read_text("utf-8")
        return {
            (str(topic), int(partition)): int(offset)
            for topic, partitions in json.loads(content).items()
            for partition, offset in partitions.items()
        }
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise SettingsError(
            f'--offsets: must be {{"TOPIC": {{"PARTITION": OFFSET}}}} or a file with that: {error}'
        ) from None
