"""`tailrace init`: the few settings that differ from machine to machine, as a file to begin with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from tailrace.local.services import states
from tailrace_common.cli.checks import may_write
from tailrace_common.cli.console import say
from tailrace_common.cli.options import FIRST_PLACE
from tailrace_common.settings import AgentSettings
from tailrace_schemas.errors import SettingsError

_LOCAL: Final = Path(".tailrace/local")
_SPOOL: Final[Path] = AgentSettings.model_fields["spool_directory"].default


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What the file names: Cassandra and Kafka as HOST:PORT, the node's cdc_raw, the sink's SQLAlchemy URL."""

    cassandra: str = "127.0.0.1:9042"
    cdc_raw: str = "/var/lib/cassandra/cdc_raw"
    kafka: str = "127.0.0.1:9092"
    sink: str = "sqlite:///tailrace.db"

    def render(self, spool: Path | None) -> str:
        """The file's text. `spool`: where segments may wait, None for the default. Raises SettingsError."""
        host, colon, port = self.cassandra.rpartition(":")
        if not colon or not port.isdigit():
            raise SettingsError(f"{self.cassandra}: Cassandra's address has the form HOST:PORT, such as 127.0.0.1:9042")
        lines = [
            "[cluster]",
            f"contact_points = [{json.dumps(host.strip('[]'))}]",
            f"port = {port}",
            "[agent]",
            f"cdc_raw_directory = {json.dumps(self.cdc_raw, ensure_ascii=False)}",
            *([f"spool_directory = {json.dumps(str(spool), ensure_ascii=False)}"] if spool else []),
            "[kafka]",
            f'"bootstrap.servers" = {json.dumps(self.kafka)}',
            "[sink.local]",
            f"url = {json.dumps(self.sink, ensure_ascii=False)}",
        ]
        return "\n".join(lines) + "\n"


def init(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")] = FIRST_PLACE,
    cassandra: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="This node's address for clients.", show_default=False)
    ] = None,
    cdc_raw: Annotated[
        str | None, typer.Option(metavar="DIR", help="This node's cdc_raw_directory.", show_default=False)
    ] = None,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,...", help="Kafka's bootstrap servers.", show_default=False)
    ] = None,
    sink: Annotated[
        str | None, typer.Option(metavar="URL", help="SQLAlchemy URL of the sink's database.", show_default=False)
    ] = None,
    directory: Annotated[
        Path, typer.Option("--directory", "-d", metavar="DIR", help="Where `tailrace local up` keeps its state.")
    ] = _LOCAL,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a small settings file.

    Uses the addresses of `tailrace local up` while that runs. On a terminal it asks for missing values; otherwise it
    asks nothing. `tailrace check` then explains faults. The tailrace.toml of the sources has every setting.

    Example: tailrace init
    """
    if output.exists() and not force:
        raise SettingsError(f"{output} exists: give --output FILE, or --force to replace it")
    answers = {"cassandra": cassandra, "cdc_raw": cdc_raw, "kafka": kafka, "sink": sink}
    chosen = {name: value for name, value in answers.items() if value is not None}
    beginning = replace(_running(directory), **chosen)
    if sys.stdin.isatty() and sys.stderr.isatty():
        beginning = asked(beginning, chosen, lambda words, default: str(typer.prompt(words, default, err=True)))
    spool = None if may_write(_SPOOL) else Path("tailrace-spool").absolute()
    text = beginning.render(spool)
    _write(output, text)
    say(f"{output}: {len(text.splitlines())} lines written; next: tailrace check{_option(output)}")


def asked(beginning: Beginning, answered: Collection[str], ask: Callable[[str, str], str]) -> Beginning:
    """Ask for everything that is not among the given names; `ask` gets the question and what is proposed."""
    questions = {
        "cassandra": "Cassandra, HOST:PORT",
        "cdc_raw": "its cdc_raw directory",
        "kafka": "Kafka's bootstrap servers",
        "sink": "database to write to, as an SQLAlchemy URL",
    }
    names = [name for name in questions if name not in answered]
    return replace(beginning, **{name: ask(questions[name], getattr(beginning, name)) for name in names})


def _running(directory: Path) -> Beginning:
    """The addresses of the local services that run, else the defaults."""
    running = {state.service: state for state in states(directory.absolute()) if state.state == "running"}
    node, broker = running.get("cassandra"), running.get("kafka")
    if node is None or broker is None:
        return Beginning()
    say(f"taking the services of `tailrace local up` in {directory}")
    return Beginning(cassandra=node.address, cdc_raw=str(node.cdc_raw), kafka=broker.address)


def _write(path: Path, text: str) -> None:
    """For this user's eyes alone: the database's URL may have a password."""
    try:
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be written: {error.strerror}") from None


def _option(path: Path) -> str:
    return "" if path == FIRST_PLACE else f" -c {path}"
