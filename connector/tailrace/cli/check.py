"""`tailrace check`: reach everything the settings name, and explain what is wrong."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from tailrace.cli.console import on_terminal, print_rows, say
from tailrace.cli.options import SettingsFile, settings_of
from tailrace_common.settings import Settings


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: whether it is as it must be, what was found, and what to do where it is not."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


CheckSource = Callable[[Settings], Iterator[Check]]


def check_directories(settings: Settings) -> Iterator[Check]:
    """The node's directories: there, and for us to read and delete from."""
    raw = settings.agent.cdc_raw_directory
    if not raw.is_dir():
        advice = "set agent.cdc_raw_directory to the node's own, and cdc_enabled: true in cassandra.yaml"
        yield Check("cdc_raw_directory", False, f"{raw} is not a directory", advice)
    elif not os.access(raw, os.R_OK | os.W_OK | os.X_OK):
        advice = "run the agent as Cassandra's user: finished segments are deleted once they are published"
        yield Check("cdc_raw_directory", False, f"{raw} is not readable and writable for this user", advice)
    else:
        free = shutil.disk_usage(raw).free // 2**20
        yield Check("cdc_raw_directory", True, f"{raw}, {free} MiB free")
    log = settings.agent.commitlog_directory
    if log is not None:
        advice = "set agent.commitlog_directory to the node's own, or leave it out"
        yield Check("commitlog_directory", os.access(log, os.R_OK | os.X_OK), str(log), advice)


def check_stream(settings: Settings) -> Iterator[Check]:
    """The Spark job's sink and checkpoint."""
    try:
        name, sink = settings.stream_sink()
    except ValueError as error:
        yield Check("sink", False, str(error), "name one of them in [stream]")
    else:
        yield _check_sqlite(name, sink.location)
    checkpoint = settings.stream.checkpoint
    if "://" in checkpoint:
        yield Check("checkpoint", True, f"{checkpoint} (not looked at)")
    else:
        parent = _existing(Path(checkpoint))
        advice = "set stream.checkpoint to a directory that this user may write"
        yield Check("checkpoint", os.access(parent, os.W_OK), str(Path(checkpoint).absolute()), advice)


def _check_sqlite(name: str, location: str) -> Check:
    if not location.startswith("sqlite:///"):
        return Check(f"sink {name}", True, f"{location} (not reached)")
    path = Path(location.removeprefix("sqlite:///"))
    writable = os.access(path if path.exists() else _existing(path), os.W_OK)
    return Check(f"sink {name}", writable, str(path.absolute()), f"set sink.{name}.url to a file that may be written")


def _existing(path: Path) -> Path:
    """The path itself, or the nearest directory above it that exists."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


class Part(StrEnum):
    """What can be looked at by itself."""

    DIRECTORIES = "directories"
    STREAM = "stream"


SOURCES: Final[Mapping[Part, CheckSource]] = {
    Part.DIRECTORIES: check_directories,
    Part.STREAM: check_stream,
}


def check(
    config: SettingsFile = None,
    only: Annotated[list[Part] | None, typer.Option(help="Look at this part only; may be repeated.")] = None,
) -> None:
    """Reach everything that the settings name, and explain what is wrong.

    Prints name, ok, detail and advice of each check; exit code 1 when one is not ok.

    Example: tailrace check -c tailrace.toml
    """
    settings = settings_of(config)
    checks = [result for part, source in SOURCES.items() if not only or part in only for result in source(settings)]
    print_rows([asdict(result) | ({"advice": ""} if result.ok else {}) for result in checks])
    wrong = sum(not result.ok for result in checks)
    if on_terminal() or wrong:
        say(f"{wrong} of {len(checks)} checks failed" if wrong else f"all {len(checks)} checks passed")
    if wrong:
        raise typer.Exit(1)
