"""What the commands of subscriptions share: their options, and the operations that they ask for."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from tailrace_common.cli.checks import Check
from tailrace_common.cli.console import say
from tailrace_common.cli.options import settings_of
from tailrace_common.sections.section import is_loopback
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.subscription import INITIAL, NEVER, ONLY, SNAPSHOT, Request
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import offsets_of, typed
from tailrace_server.operations.operations import DirectOperations, Operations
from tailrace_server.operations.remote import RemoteOperations


class SnapshotMode(StrEnum):
    """Whether the rows that tables have are read."""

    INITIAL = INITIAL
    NEVER = NEVER
    ONLY = ONLY


Reference = Annotated[
    str, typer.Argument(metavar="SUBSCRIPTION", help="KEYSPACE.TABLE/NAME, or its name where that is the only one.")
]
ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Ask this server's HTTP API, such as http://127.0.0.1:8085, not the meta database of the settings.",
        show_default=False,
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        metavar="FILE",
        help="File with the API key for --server, instead of TAILRACE_API_KEY.",
        show_default=False,
    ),
]
KEY_VARIABLE = "TAILRACE_API_KEY"
Unchecked = Annotated[
    bool, typer.Option("--unchecked", help="Look at neither table nor sink first: a worker may see more than this.")
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
SnapshotChoice = Annotated[
    SnapshotMode | None,
    typer.Option(
        help="Read the rows that the tables have: at the beginning while the log is followed (initial), and nothing "
        "else (only), or never.",
        show_default="server.snapshot",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="A setting of the target that is the subscription's own, such as table={table}; repeatable.",
    ),
]


@contextmanager
def opened(settings: Settings) -> Iterator[tuple[MetaDatabase, Subscriptions]]:
    """The meta database of the settings, with its tables."""
    with MetaDatabase(settings.server.url.get_secret_value()) as database:
        database.prepare()
        yield database, Subscriptions(database)


@contextmanager
def operations_of(config: Path | None, server: str | None, key_file: Path | None) -> Iterator[Operations]:
    """The operations of a server, where one is named, else on the meta database of the settings."""
    if server is not None:
        with RemoteOperations(server, _api_key(server, key_file)) as operations:
            yield operations
        return
    settings = settings_of(config)
    with opened(settings) as (_, subscriptions):
        yield DirectOperations(subscriptions, settings, who(), _examined)


def _examined(settings: Settings, request: Request) -> Sequence[Check]:
    """What is looked at before a request is kept."""
    from tailrace_server.operations.checks import examined  # most commands need neither sinks nor a parser of SQL

    return examined(settings, request)


def say_notes(answer: Answer) -> None:
    """Say what was seen of a request; the answer is printed without."""
    for note in answer.pop("notes", ()):
        say(note)


def _api_key(server: str, file: Path | None) -> str | None:
    """The key for a server: of the file, else of the environment. Raises SettingsError."""
    if server.startswith("http://") and not is_loopback(urlsplit(server).hostname or ""):
        say(f"{server} is not https: the API key is readable on the way")
    if file is None:
        return os.environ.get(KEY_VARIABLE)
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--api-key-file {file}: cannot be read: {error}") from None


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


def stream_settings(words: Sequence[str] | None, snapshot: SnapshotMode | None) -> dict[str, Any]:
    """The settings of [stream] that options name. Raises SettingsError."""
    settings = typed_pairs(words, "--stream")
    return settings if snapshot is None else {**settings, SNAPSHOT: str(snapshot)}


def typed_pairs(words: Sequence[str] | None, option: str) -> dict[str, Any]:
    """The same, with values as TOML reads them."""
    return {name: typed(value) for name, value in pairs(words, option).items()}


def offsets_in(text: str) -> dict[KafkaPartition, int]:
    """Offsets as JSON, or in a file of that. Raises SettingsError."""
    try:
        return offsets_of(text if text.lstrip().startswith("{") else Path(text).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--offsets {text}: cannot be read: {error}") from None
