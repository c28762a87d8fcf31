"""`tailrace demo`: real Cassandra, Kafka and Spark on this machine, and a SQLite file that follows."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated

import typer
from rich.console import Console

from tailrace.cli.support.fetching import fetch_with_progress
from tailrace.cluster import LiveCluster
from tailrace.demo.flow import Flow, Screen, copy_of, prepared, write, written
from tailrace.demo.parts import PREFIX, DemoServices
from tailrace.demo.script import KEYSPACE, TABLES
from tailrace_common.cli.console import on_terminal, print_json, say
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
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory for data and logs. Default: a temporary one, removed at the end."),
    ] = None,
) -> None:
    """Run Cassandra, Kafka and Spark on this machine, write changes of every kind, and keep a SQLite file equal.

    At the end `tailrace compare` holds the file against Cassandra, row by row: "identical: N rows", or exit code 1. A
    terminal shows each change that arrives; a pipe gets a JSON line for each, and one for the outcome. The first run
    fetches the services' jars. Ctrl-C, or closing the terminal, ends all services.

    Example: tailrace demo --duration 30 --keep
    """
    _require_spark()
    _ignore_settings()
    data_directory = Path(mkdtemp(prefix="tailrace-demo-")) if directory is None else directory.absolute()
    data_directory.mkdir(parents=True, exist_ok=True)
    try:
        with stopped_by_signals(), _log_into(data_directory / "demo.log"):
            fetch_with_progress("cassandra", "kafka", "spark")
            _run(data_directory, written(seed, changes, duration), changes + 2 if duration is None else None, keep=keep)
    except KeyboardInterrupt:
        say("ended, and everything that was started")
        _remove(data_directory, directory)
        raise typer.Exit(0 if keep else 130) from None
    except TailraceError:
        say(f"data and logs stay in {data_directory}")
        raise
    _remove(data_directory, directory)


def _run(directory: Path, script: Iterator[str], total: int | None, *, keep: bool) -> None:
    """Start, write, follow, compare. Whatever is raised, everything that was started is ended before."""
    began = time.monotonic()
    with ExitStack() as stack:
        screen = Screen(Console() if on_terminal() else None, total)
        stack.callback(screen.close)
        parts = DemoServices(directory)
        stack.callback(parts.stop)
        stack.enter_context(hung_up())
        source: list[LiveCluster] = []
        parts.start(lambda: source.append(stack.enter_context(closing(prepared(parts)))))
        flow = stack.enter_context(Flow(parts, screen.landed, time.time))
        count = write(script, source[0], parts, flow, screen)
        verdict = parts.compare()
        screen.close()
        seconds, median = time.monotonic() - began, flow.median_seconds
        if not on_terminal():
            outcome = {"identical": True, "rows": flow.rows, "statements": count, "changes": flow.landed}
            print_json({**outcome, "median_seconds": median and round(median, 3), "seconds": round(seconds, 1)})
        say(f"{verdict}identical: {flow.rows} rows ({count} statements, {flow.landed} changes, {seconds:.0f} s in all)")
        if keep:
            say(_addresses(parts))
            while True:
                parts.require_running()
                flow.turn()


@contextmanager
def hung_up() -> Iterator[None]:
    """Take a terminal that is gone for its SIGHUP, which is on its way and would interrupt the clean-up."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EIO:
            signal.raise_signal(signal.SIGHUP)
        raise


def _addresses(parts: DemoServices) -> str:
    """Each on a line of its own, to be copied."""
    lines = {
        "Cassandra, keyspace shop: change it and see it arrive": parts.where["cassandra"],
        f"Kafka, topics {PREFIX}.{KEYSPACE}.<table>": parts.kafka,
        "SQLite": f"sqlite3 {parts.copy} 'SELECT * FROM {copy_of(TABLES[0])}'",  # noqa: S608 - a name of ours
        "Compare again": f"tailrace {' '.join(parts.compare_words)}",
        **{f"Log of {service.name}": str(service.log) for service in parts.all},
    }
    return "\n".join(["everything keeps running until Ctrl-C", *(f"{name}:\n{line}" for name, line in lines.items())])


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
