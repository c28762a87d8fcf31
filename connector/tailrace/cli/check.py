"""`tailrace check`: reach everything the settings name, and explain what is wrong."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import entry_points
from typing import Annotated, Final

import typer

from tailrace.cli.check_cassandra import check_cassandra
from tailrace.cli.check_directories import check_directories
from tailrace.cli.check_kafka import check_kafka, check_registry
from tailrace_common.checks import CheckSource
from tailrace_common.command_options import SettingsFile, settings_of
from tailrace_common.console import on_terminal, print_rows, say
from tailrace_schemas.errors import SettingsError

ENTRY_POINTS: Final = "tailrace.checks"


def sources(only: Collection[str]) -> Mapping[str, CheckSource]:
    """What to look at, by name: the agent's parts, and what other packages announce. All of it where `only` is empty.

    Raises SettingsError for a name that nobody has.
    """
    ours: dict[str, CheckSource] = {
        "directories": check_directories,
        "cassandra": check_cassandra,
        "kafka": check_kafka,
        "registry": check_registry,
    }
    points = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    unknown = sorted(set(only) - {*ours, *points})
    if unknown:
        raise SettingsError(f"--only {unknown[0]}: the parts are {', '.join((*ours, *points))}")
    found: dict[str, CheckSource] = {name: source for name, source in ours.items() if not only or name in only}
    for name, point in points.items():
        if not only or name in only:
            try:
                found[name] = point.load()
            except ImportError as cause:
                say(f"{name} is not checked: it needs {cause.name}")
    return found


@contextmanager
def _driver_silenced() -> Iterator[None]:
    """What Cassandra's driver logs while it fails to connect, the check says itself."""
    driver = logging.getLogger("cassandra")
    before = driver.level
    driver.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        driver.setLevel(before)


def check(
    config: SettingsFile = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART", help="Look at this alone: directories, cassandra, kafka, registry, stream. May be repeated."
        ),
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of the sinks, look at this [sink.NAME] alone.", show_default=False),
    ] = None,
) -> None:
    """Reach everything that the settings name, and explain what is wrong.

    Prints name, ok, detail and advice of each check; exit code 1 when one is not ok. Looks at every sink, or at --sink.

    Example: tailrace check -c tailrace.toml
    """
    settings = settings_of(config)
    if sink is not None:
        settings = settings.with_sink(sink)
    with _driver_silenced():
        checks = [found for source in sources(only or ()).values() for found in source(settings)]
    print_rows(asdict(found) for found in checks)
    wrong = sum(not found.ok for found in checks)
    if on_terminal() or wrong:
        say(f"{wrong} of {len(checks)} checks failed" if wrong else f"all {len(checks)} checks passed")
    if wrong:
        raise typer.Exit(1)
