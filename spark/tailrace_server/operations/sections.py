"""Settings of one subscription: those of the server, with its target, filter, masks and topics in them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic import BaseModel, SecretStr

from tailrace_common.properties.passthrough import Properties
from tailrace_common.sections.stream import StreamSettings
from tailrace_common.settings import Settings, SinkSettings, settings_from
from tailrace_schemas.errors import SettingsError
from tailrace_server.model.errors import RefusedRequestError
from tailrace_server.model.subscription import NEVER, SNAPSHOT, Shape, Sink, TableName

STREAM_NAMES: Final = (
    "accept_early", "execution", "fail_on_data_loss", "max_bytes_per_part", "max_offsets_per_trigger",
    "one_copy_seconds", SNAPSHOT, "trigger_seconds",
)  # fmt: skip
"""The settings of [stream] that a subscription may have of its own."""
_LONGEST_GUESS: Final = 100


def target_of(base: Settings, name: str) -> SinkSettings:
    """The [sink.NAME] of the server. Raises RefusedRequestError with the nearest name, or those that there are."""
    if name in base.sink:
        return base.sink[name]
    raise RefusedRequestError(
        f'target "{name}": there is no [sink.{name}] in the settings of this server; '
        f"{_meant(name, base.sink, 'the targets')}"
    )


def section_of(
    base: Settings, table: TableName, name: str, sink: Sink, shape: Shape
) -> tuple[SinkSettings, StreamSettings]:
    """The sections [sink.NAME] and [stream] of a subscription.

    Raises SettingsError with a line for each fault: its name, what it must be, and the nearest name that there is.
    """
    target = target_of(base, sink.target)
    if target.type != sink.type:
        raise SettingsError(
            f"subscription {name}: [sink.{sink.target}] is of type {target.type} by now, and was {sink.type}: cancel "
            "this one, and subscribe anew"
        )
    _require_known(name, "options", sink.options, type(target).by_subscription)
    _require_known(name, "stream", shape.stream, STREAM_NAMES)
    stream: dict[str, Any] = {**_revealed(base.stream), **shape.stream, "sink": name, "where": {}, "columns": {}}
    # What [stream] says is for `tailrace stream`; a request that says nothing has server.snapshot, once it is made.
    stream[SNAPSHOT] = shape.stream.get(SNAPSHOT, NEVER)
    if shape.where is not None:
        stream["where"] = {str(table): shape.where}
    stream["columns"] = {f"{table}.{column}": treatment for column, treatment in shape.columns.items()}
    section = {"type": target.type, **_revealed(target), **sink.options}
    checked = settings_from({"sink": {name: section}, "stream": stream}, f"subscription {name}")
    return checked.sink[name].for_subscription(name), checked.stream


def _require_known(name: str, section: str, options: Collection[str], names: Collection[str]) -> None:
    for option in options:
        if option not in names:
            hint = _meant(option, names, "a subscription may set")
            raise RefusedRequestError(f"subscription {name}: unknown setting {section}.{option}; {hint}")


def _meant(name: str, names: Collection[str], listed_as: str) -> str:
    close = difflib.get_close_matches(name[:_LONGEST_GUESS], names, n=1)
    return f"did you mean {close[0]}?" if close else f"{listed_as}: {', '.join(sorted(names)) or 'none'}"


def _revealed(section: BaseModel) -> dict[str, object]:
    """What is set in a section, with its secrets, as JSON has it. The files that held secrets are no part of it."""
    fields = type(section).model_fields
    values: dict[str, object] = {}
    for name in section.model_fields_set:
        value = getattr(section, name)
        secret = name.removesuffix("_file")
        if secret != name and secret in fields and getattr(section, secret) is not None:
            continue
        values[name] = _value(value)
    for name, field in fields.items():
        if field.annotation in (SecretStr, SecretStr | None) and f"{name}_file" in section.model_fields_set:
            values[name] = _value(getattr(section, name))
    return values


def _value(value: object) -> object:
    match value:
        case SecretStr():
            return value.get_secret_value()
        case Properties():
            return value.reveal()
        case BaseModel():
            return _revealed(value)
        case Mapping():
            return {str(name): _value(item) for name, item in value.items()}
        case tuple() | list():
            return [_value(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
