"""A request as it comes from outside, and what makes it a request that can be kept: or a RefusedRequestError."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import SecretStr

from tailrace_common.secrets import is_secret_name
from tailrace_common.settings import Settings
from tailrace_common.settings.sinks import SINK_TYPES
from tailrace_schemas.errors import SettingsError
from tailrace_server.model.errors import RefusedRequestError
from tailrace_server.model.subscription import (
    NEVER,
    SNAPSHOT,
    Request,
    Shape,
    SinkSummary,
    Start,
    Subscription,
    TableName,
    require_name,
)
from tailrace_server.operations.sections import revealed, section_of, shown

_CHANGE_LOGS_ONLY: Final = "log-tables"
_OF_A_TERMINAL: Final = "console"
_FILE_NAMES: Final = ("_file", ".file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody asks for, unchecked. `sink` is the section of a [sink.NAME]."""

    table: str
    name: str
    sink: Mapping[str, Any] = field(repr=False)
    where: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    stream: Mapping[str, Any] = field(default_factory=dict)
    start: str = "earliest"


def checked(spec: Asked, base: Settings) -> Request:
    """The request, against the settings of the server.

    Raises RefusedRequestError with a line for each fault: what is wrong, at which name, and the nearest name.
    """
    table = TableName.parse(base.topics.prefix, spec.table)
    name = require_name(spec.name)
    shape = Shape(where=spec.where, columns=dict(spec.columns), stream=dict(spec.stream))
    try:
        section, _ = section_of(base, table, name, spec.sink, shape)
    except SettingsError as error:
        raise RefusedRequestError(str(error)) from None
    _require_fit(name, section.type, shape)
    _require_target(name, section.location, base.server.targets)
    summary = SinkSummary(type=section.type, target=section.location, shown={"type": section.type, **shown(section)})
    settings = {"type": section.type, **revealed(section)}
    return Request(table=table, name=name, sink=summary, settings=settings, shape=shape, start=Start.parse(spec.start))


def with_snapshot(spec: Asked, existing: Subscription | None, base: Settings) -> Asked:
    """The same, with a choice whether the tables are read, where it makes none.

    That of the subscription that has the name: the same request is the same one, though server.snapshot has changed.
    Else server.snapshot, as far as the sink can take rows that were read.
    """
    if SNAPSHOT in spec.stream or (existing is not None and SNAPSHOT not in existing.shape.stream):
        return spec
    if existing is not None:
        choice = existing.snapshot
    else:
        choice = NEVER if spec.sink.get("type") == _CHANGE_LOGS_ONLY else base.server.snapshot
    return replace(spec, stream={**spec.stream, SNAPSHOT: choice})


def takes_snapshots(kind: str) -> bool:
    """Whether sinks of this type take rows that were read."""
    return kind != _CHANGE_LOGS_ONLY


def require_snapshots(name: str, kind: str) -> None:
    """Raises RefusedRequestError for a sink that takes no rows that were read."""
    if not takes_snapshots(kind):
        raise RefusedRequestError(
            f"subscription {name}: snapshot is not for log tables, which repeat updates as they were written; rows "
            "that were read are none"
        )


def refuse_files(settings: Mapping[str, Any]) -> None:
    """Refuse settings that name files: over HTTP these would be files of the server. Raises RefusedRequestError."""
    for name in _file_names(settings):
        raise RefusedRequestError(
            f"sink.{name}: over HTTP no setting may name a file, which would be one of the server's; send the value "
            f"itself as {name.removesuffix('_file').removesuffix('.file')}"
        )


def _file_names(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        if name.endswith(_FILE_NAMES):
            yield name
        elif isinstance(value, Mapping):
            yield from (f"{name}.{below}" for below in _file_names(value))


def secret_names(kind: str, options: Iterable[str]) -> Iterator[str]:
    """Those of the options of a type of sink that are secrets themselves, and not names of files with them."""
    fields = SINK_TYPES[kind].model_fields if kind in SINK_TYPES else {}
    for name in options:
        secret = name in fields and fields[name].annotation in (SecretStr, SecretStr | None)
        if secret or (is_secret_name(name) and not name.endswith(_FILE_NAMES)):
            yield name


def _require_fit(name: str, kind: str, shape: Shape) -> None:
    if kind == _OF_A_TERMINAL:
        raise RefusedRequestError(
            f'subscription {name}: sink.type = "console" prints where the worker runs, which nobody reads; '
            "use `tailrace stream` or `tailrace tail` for that"
        )
    if shape.stream.get(SNAPSHOT, NEVER) != NEVER:
        require_snapshots(name, kind)
    if kind == _CHANGE_LOGS_ONLY and (shape.where is not None or shape.columns):
        setting = "where" if shape.where is not None else "columns"
        raise RefusedRequestError(
            f"subscription {name}: {setting} is not for log tables: they repeat each update as it was written"
        )


def _require_target(name: str, target: str, allowed: tuple[str, ...]) -> None:
    if allowed and not any(fnmatch.fnmatchcase(target, pattern) for pattern in allowed):
        raise RefusedRequestError(
            f"subscription {name}: the sink writes to {target}, and this server allows only {', '.join(allowed)} "
            "(server.targets)"
        )
