"""`tailrace check`: reach everything the settings name, and explain what is wrong."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import entry_points
from typing import Annotated, Final

import typer

from tailrace.cli.checks.cassandra import check_cassandra
from tailrace.cli.checks.directories import check_directories
from tailrace.cli.checks.kafka import check_kafka, check_registry
from tailrace_common.build import PURE_ADVICE, compiled_sources, describe
from tailrace_common.cli.checks import Check, CheckSource
from tailrace_common.cli.console import on_terminal, print_rows, say
from tailrace_common.cli.options import SettingsFile, settings_of
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError

ENTRY_POINTS: Final = "tailrace.checks"
_SLOW_SECONDS: Final = 2.0


def check_code(_settings: Settings, sources: Mapping[str, str] | None = None) -> Iterator[Check]:
    """Compiled or pure Python: the same changes, at another price. `sources` are those that were compiled."""
    sources = compiled_sources() if sources is None else sources
    yield Check("code", True, describe(sources), "" if sources else f"pure Python: {PURE_ADVICE}")


def sources(only: Collection[str], *, sinks: bool = False) -> Mapping[str, CheckSource]:
    """What to look at, by name: the agent's parts, and what other packages announce. All of it where `only` is empty.

    `sinks`: a sink was asked for. Raises SettingsError for a name that nobody has, and for a part that was asked for
    and cannot be loaded.
    """
    built_in: dict[str, CheckSource] = {
        "directories": check_directories,
        "cassandra": check_cassandra,
        "kafka": check_kafka,
        "registry": check_registry,
        "code": check_code,
    }
    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    unknown = sorted(set(only) - {*built_in, *points})
    if unknown:
        raise SettingsError(f"--only {unknown[0]}: the parts are {', '.join((*built_in, *points))}")
    chosen: dict[str, CheckSource] = {name: source for name, source in built_in.items() if not only or name in only}
    for name, point in points.items():
        if not only or name in only:
            try:
                chosen[name] = point.load()
            except ImportError as cause:
                words = f"{name} is not checked: it needs {cause.name}"
                if only or sinks:
                    raise SettingsError(words) from None
                say(words)
    return chosen


def timed(
    parts: Iterable[CheckSource], settings: Settings, clock: Callable[[], float]
) -> Iterator[tuple[Check, float]]:
    """The rows of these parts, each with the seconds that it took."""
    for source in parts:
        began = clock()
        for row in source(settings):
            ended = clock()
            yield row, ended - began
            began = clock()


def slow_words(rows: Iterable[tuple[Check, float]]) -> str:
    """Names those that passed, and took long; empty where none did. Those that failed say so themselves."""
    slow = [f"{row.name} ({seconds:.1f} s)" for row, seconds in rows if row.ok and seconds > _SLOW_SECONDS]
    if not slow:
        return ""
    return f"slow: {', '.join(slow)}. What answers so late delays changes too: look at its load and at the network"


@contextmanager
def _driver_silenced() -> Iterator[None]:
    """What Cassandra's driver logs while it fails to connect, the check says itself."""
    driver = logging.getLogger("cassandra")
    level = driver.level
    driver.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        driver.setLevel(level)


def check(
    config: SettingsFile = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART",
            help="Run only these checks: directories, cassandra, kafka, registry, code, stream. Repeatable.",
        ),
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Check only this [sink.NAME].", show_default=False),
    ] = None,
) -> None:
    """Connect to every service of the settings, and explain faults.

    Prints name, ok, detail, advice and seconds of each check, and marks slow ones. Checks every sink, or the one of
    --sink. Exit code 1 when a check fails, 2 when what --only or --sink names cannot be looked at.

    Example: tailrace check -c tailrace.toml
    """
    settings = settings_of(config)
    if sink is not None:
        settings = settings.with_sink(sink)
    with _driver_silenced():
        rows = tuple(timed(sources(only or (), sinks=sink is not None).values(), settings, time.monotonic))
    print_rows({**asdict(row), "seconds": round(seconds, 3)} for row, seconds in rows)
    checks = [row for row, _ in rows]
    if slow := slow_words(rows):
        say(slow)
    wrong = sum(not row.ok for row in checks)
    if on_terminal() or wrong:
        say(f"{wrong} of {len(checks)} checks failed" if wrong else f"all {len(checks)} checks passed")
    if wrong:
        raise typer.Exit(1)
