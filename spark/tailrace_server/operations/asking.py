"""A request as it comes from outside, and what makes it a request that can be kept: or a RefusedRequestError."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

from tailrace_common.settings import Settings, SinkSettings, settings_from
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.model.subscription import (
    EARLIEST,
    NEVER,
    SNAPSHOT,
    RefusedRequestError,
    Request,
    Shape,
    Sink,
    Start,
    Subscription,
    TableName,
    require_name,
)
from tailrace_spark.batch.delivery import offsets_from_json

_CHANGE_LOGS_ONLY: Final = "log-tables"
_OF_A_TERMINAL: Final = "console"
_TEXTS: Final = ("table", "name", "target", "start", "where")
_MOST_SETTINGS: Final = 1000
_LONGEST_TEXT: Final = 1000
_LONGEST_WHERE: Final = 10_000
_LARGEST_NUMBER: Final = 2**63
_MOST_OFFSETS: Final = 10_000
_OFFSETS: Final = 'offsets: must be {"TOPIC": {"PARTITION": OFFSET}}'
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


Value = bool | int | float | str
STREAM_NAMES: Final = (
    "accept_early", "execution", "fail_on_data_loss", "max_bytes_per_part", "max_offsets_per_trigger",
    "one_copy_seconds", SNAPSHOT, "trigger_seconds",
)  # fmt: skip
"""The settings of [stream] that a subscription may have of its own."""
_LONGEST_GUESS: Final = 100


class Body:
    """What is a body of HTTP too: nothing unknown is in it, and its fields are described in the API."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", hide_input_in_errors=True)


@dataclass(frozen=True, kw_only=True)
class Asked(Body):
    """What somebody asks for, unchecked: a request for a table."""

    table: Annotated[str, Field(description="KEYSPACE.TABLE, or a pattern with * and ?", examples=["shop.orders"])]
    name: Annotated[str, Field(description="The subscriber: unique for the table", examples=["warehouse"])]
    target: Annotated[str, Field(description="A [sink.NAME] of the servers' settings", examples=["warehouse"])]
    options: Annotated[
        Mapping[str, Value],
        Field(description="Settings of the target that are a subscription's own", examples=[{"table": "{table}"}]),
    ] = field(default_factory=dict)
    where: Annotated[str | None, Field(description="Which changes the sink is given (docs/shaping.md)")] = None
    columns: Annotated[Mapping[str, str], Field(description="What the sink sees of columns, by name")] = field(
        default_factory=dict
    )
    stream: Annotated[Mapping[str, Value], Field(description="Settings of [stream] for this one")] = field(
        default_factory=dict
    )
    start: Annotated[str, Field(description="Where to begin: earliest, latest, or a time (ISO 8601)")] = EARLIEST


def checked(spec: Asked, base: Settings) -> Request:
    """The request, against the settings of the server.

    Raises RefusedRequestError with a line for each fault: what is wrong, at which name, and the nearest name.
    """
    require_plain(asdict(spec))
    table = TableName.parse(base.topics.prefix, spec.table)
    name = require_name(spec.name)
    shape = Shape(where=spec.where, columns=dict(spec.columns), stream=dict(spec.stream))
    sink = Sink(type=target_of(base, spec.target).type, target=spec.target, options=dict(spec.options))
    try:
        own_settings(base, table, name, sink, shape)
    except SettingsError as error:
        raise RefusedRequestError(str(error)) from None
    _require_fit(name, sink.type, shape)
    return Request(table=table, name=name, sink=sink, shape=shape, start=Start.parse(spec.start))


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
        choice = base.server.snapshot if takes_snapshots(target_of(base, spec.target).type) else NEVER
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


def targets(base: Settings) -> dict[str, str]:
    """The targets of a server by name, with their types: all sinks but those that print."""
    return {name: section.type for name, section in base.sink.items() if section.type != _OF_A_TERMINAL}


def require_plain(members: Mapping[str, Any]) -> None:
    """Raises RefusedRequestError for what neither JSON nor a database has, and for what is too long to be meant.

    The members are those of a request or an alteration.
    """
    texts = {name: members[name] for name in _TEXTS if members.get(name) is not None}
    texts |= {f"columns.{name}": text for name, text in members["columns"].items() if text is not None}
    for setting, text in texts.items():
        if not isinstance(text, str):
            raise RefusedRequestError(f"{setting}: must be a text")
        _require_value(setting, text, _LONGEST_WHERE if setting == "where" else _LONGEST_TEXT)
    for setting in ("options", "columns", "stream"):
        values = members[setting]
        if len(values) > _MOST_SETTINGS:
            raise RefusedRequestError(f"{setting}: has {len(values)} names, and may have {_MOST_SETTINGS}")
        for name, value in values.items():
            _require_value(setting, name)
            if value is not None:
                _require_value(f"{setting}.{name}", value)


def _require_value(setting: str, value: object, longest: int = _LONGEST_TEXT) -> None:
    match value:
        case bool():
            return
        case int() | float():
            if not -_LARGEST_NUMBER < value < _LARGEST_NUMBER:  # which NaN is not either
                raise RefusedRequestError(f"{setting}: the number is too large, or none")
        case str():
            if len(value) > longest:
                raise RefusedRequestError(f"{setting}: has {len(value)} characters, and may have {longest}")
            if "\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
                raise RefusedRequestError(f"{setting}: has a character that is none")
        case _:
            raise RefusedRequestError(f"{setting}: must be a text, a number or true or false")


def typed(text: str) -> str | int | float:
    """A value without quotes, as TOML reads it: 5 is a number and true is true. Else it stays text."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return text
    return value if isinstance(value, str | int | float) else text


def offsets_of(text: str) -> dict[KafkaPartition, int]:
    """{"TOPIC": {"PARTITION": OFFSET}} out of JSON. Raises RefusedRequestError."""
    try:
        return offsets_from_json(text)
    except (ValueError, OverflowError, RecursionError):
        raise RefusedRequestError(_OFFSETS) from None


def require_offsets(offsets: Mapping[KafkaPartition, int]) -> None:
    """Raises RefusedRequestError for what is no offset in a partition of Kafka's."""
    if len(offsets) > _MOST_OFFSETS:
        raise RefusedRequestError(f"offsets: there are {len(offsets)}, and may be {_MOST_OFFSETS} at a time")
    for (topic, partition), offset in offsets.items():
        if not (_TOPIC.fullmatch(topic) and 0 <= partition < 2**31 and 0 <= offset < _LARGEST_NUMBER):
            raise RefusedRequestError(f"{_OFFSETS} with numbers from 0 on")


def _require_fit(name: str, kind: str, shape: Shape) -> None:
    if kind == _OF_A_TERMINAL:
        raise RefusedRequestError(
            f'subscription {name}: a sink of type "console" prints where the worker runs, which nobody reads; '
            "use `tailrace stream` or `tailrace tail` for that"
        )
    if shape.stream.get(SNAPSHOT, NEVER) != NEVER:
        require_snapshots(name, kind)
    if kind == _CHANGE_LOGS_ONLY and (shape.where is not None or shape.columns):
        setting = "where" if shape.where is not None else "columns"
        raise RefusedRequestError(
            f"subscription {name}: {setting} is not for log tables: they repeat each update as it was written"
        )


def target_of(base: Settings, name: str) -> SinkSettings:
    """The [sink.NAME] of the server. Raises RefusedRequestError with the nearest name, or those that there are."""
    if name in base.sink:
        return base.sink[name]
    raise RefusedRequestError(
        f'target "{name}": there is no [sink.{name}] in the settings of this server; '
        f"{_meant(name, base.sink, 'the targets')}"
    )


def own_settings(base: Settings, table: TableName, name: str, sink: Sink, shape: Shape) -> Settings:
    """The settings of the server with a subscription's own [stream], and its own [sink.NAME] alone.

    Raises SettingsError with a line for each fault: its name, what it must be, and the nearest name that there is.
    """
    target = target_of(base, sink.target)
    if target.type != sink.type:
        raise SettingsError(
            f"subscription {name}: [sink.{sink.target}] is of type {target.type} by now, and was {sink.type}: cancel "
            "the subscription and subscribe again"
        )
    _require_known(name, "options", sink.options, type(target).by_subscription)
    _require_known(name, "stream", shape.stream, STREAM_NAMES)
    stream: dict[str, Any] = {**_given(base.stream), **shape.stream, "sink": name, "where": {}, "columns": {}}
    # What [stream] says is for `tailrace stream`; a request that says nothing has server.snapshot, once it is made.
    stream[SNAPSHOT] = shape.stream.get(SNAPSHOT, NEVER)
    if shape.where is not None:
        stream["where"] = {str(table): shape.where}
    stream["columns"] = {f"{table}.{column}": treatment for column, treatment in shape.columns.items()}
    section = {"type": target.type, **_given(target), **sink.options}
    checked = settings_from({"sink": {name: section}, "stream": stream}, f"subscription {name}")
    sections = {"sink": {name: checked.sink[name].for_subscription(name)}, "stream": checked.stream}
    return base.model_copy(update=sections)


def _require_known(name: str, section: str, options: Collection[str], names: Collection[str]) -> None:
    for option in options:
        if option not in names:
            hint = _meant(option, names, "a subscription may set")
            raise RefusedRequestError(f"subscription {name}: unknown setting {section}.{option}; {hint}")


def _meant(name: str, names: Collection[str], listed_as: str) -> str:
    close = difflib.get_close_matches(name[:_LONGEST_GUESS], names, n=1)
    return f"did you mean {close[0]}?" if close else f"{listed_as}: {', '.join(sorted(names)) or 'none'}"


def _given(section: BaseModel) -> dict[str, object]:
    """What is set in a section. The files that held secrets are no part of it: the secrets are set themselves."""
    values = {name: getattr(section, name) for name in section.model_fields_set}
    return {
        name: value
        for name, value in values.items()
        if not name.endswith("_file") or values.get(name.removesuffix("_file")) is None
    }
