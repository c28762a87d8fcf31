"""`tailrace demo`: real Cassandra, Kafka and Spark on this machine, and a SQLite file that follows."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from tailrace.demo.display import Display
from tailrace.demo.lines import Lines
from tailrace.demo.run import Plan, run
from tailrace.demo.screen import Screen
from tailrace.demo.writer import Amount
from tailrace_common.cli.console import on_terminal, say
from tailrace_common.cli.logs import set_up_logging
from tailrace_common.cli.signals import stopped_by_signals
from tailrace_schemas.errors import SettingsError, TailraceError


def demo(
    changes: Annotated[int, typer.Option(min=1, help="Number of statements to write.")] = 300,
    duration: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Write for this long instead.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the script of changes.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the services running until Ctrl-C.")] = False,
    prove: Annotated[bool, typer.Option("--prove", hidden=True, help="Then spoil a value and compare again.")] = False,
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory for data and logs. Default: a temporary one, removed at the end."),
    ] = None,
) -> None:
    """Run Cassandra, Kafka and Spark on this machine, write changes of every kind, and keep a SQLite file equal.

    At the end it compares the file with SELECT, row by row and column by column: "identical: N rows", or exit code 1. A
    terminal shows a live screen; a pipe gets a JSON line for each change and one for the outcome. The first run fetches
    the services' jars. Ctrl-C, or closing the terminal, ends all services.

    Example: tailrace demo --duration 30 --keep
    """
    _require_spark()
    _ignore_settings()
    data_directory = Path(mkdtemp(prefix="tailrace-demo-")) if directory is None else directory.absolute()
    data_directory.mkdir(parents=True, exist_ok=True)
    amount = Amount(changes=changes, seconds=duration)
    display: Display = Screen(Console()) if on_terminal() else Lines(sys.stdout, say)
    try:
        with stopped_by_signals(), _log_into(data_directory / "demo.log"):
            comparison = run(Plan(directory=data_directory, amount=amount, seed=seed, keep=keep, prove=prove), display)
    except KeyboardInterrupt:
        say("ended, and everything that was started")
        _remove(data_directory, directory)
        raise typer.Exit(0 if keep else 130) from None
    except TailraceError:
        say(f"data and logs stay in {data_directory}")
        raise
    _remove(data_directory, directory)
    if not comparison.identical:
        raise typer.Exit(1)


def _require_spark() -> None:
    """Raise SettingsError where the stream could not run: before anything is fetched and started."""
    missing = [name for name in ("pyspark", "sqlalchemy") if find_spec(name) is None]
    if missing:
        raise SettingsError(f"the demo needs {' and '.join(missing)}: pip install 'tailrace[spark]'")


def _remove(directory: Path, chosen: Path | None) -> None:
    if chosen is None:
        shutil.rmtree(directory, ignore_errors=True)


def _ignore_settings() -> None:
    """The agent and the stream of the demo take their settings from its own file alone."""
    for name in [name for name in os.environ if name.startswith("TAILRACE_") and "__" in name]:
        del os.environ[name]


@contextmanager
def _log_into(path: Path) -> Iterator[None]:
    """Log lines between the changes would spoil the screen."""
    with path.open("a") as file:
        set_up_logging("info", json_lines=False, stream=file)
        try:
            yield
        finally:
            set_up_logging("warning", json_lines=False, stream=sys.stderr)
