"""What commands for the tables of a lake have in common: which sink, which of its tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import typer

from tailrace_common.settings import Settings, SinkSettings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.registry import SINKS

NO_TABLES: Final = "the sink has no tables yet"
TableNames = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="NAME", help="Only the table of this name, as `tables` prints it; repeatable."),
]


def chosen_sink(settings: Settings, name: str | None) -> tuple[str, SinkSettings]:
    """The name and the section of a sink: the one that is named, else the stream's. Raises SettingsError."""
    try:
        return (name, settings.sink[name]) if name is not None else settings.stream_sink()
    except KeyError:
        raise SettingsError(f"--sink {name}: there is no [sink.{name}]; set: {', '.join(settings.sink)}") from None
    except ValueError as error:
        raise SettingsError(str(error)) from None


def require_installed(chosen: str, section: SinkSettings) -> None:
    """Raises SettingsError where a package that a sink needs is not installed."""
    kind = SINKS[section.type]
    if missing := kind.missing():
        raise SettingsError(f"sink.{chosen}: needs {', '.join(missing)}, not installed: {kind.install}")


def chosen_tables(store: LakeStore, requested: Iterable[str] | None) -> list[str]:
    """The names of a store's tables, or those of them that are wanted. Raises SettingsError, ServiceError."""
    existing = [name for name in store.names() if store.open(name) is not None]
    names = existing if requested is None else list(requested)
    for name in names:
        if name not in existing:
            raise SettingsError(f"--table {name}: there is no such table; there: {', '.join(existing) or 'none'}")
    return names
