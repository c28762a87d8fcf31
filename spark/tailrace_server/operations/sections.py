"""Settings of one subscription: those of the server, with its own sink, filter, masks and topics in them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, SecretStr

from tailrace_common.properties.passthrough import Properties
from tailrace_common.secrets import REDACTED, is_secret_name, redact
from tailrace_common.sections.stream import StreamSettings
from tailrace_common.settings import Settings, SinkSettings, settings_from
from tailrace_server.model.errors import RefusedRequestError
from tailrace_server.model.subscription import NEVER, SNAPSHOT, Shape, TableName

STREAM_NAMES: Final = (
    "accept_early", "execution", "fail_on_data_loss", "max_bytes_per_part", "max_offsets_per_trigger",
    "one_copy_seconds", SNAPSHOT, "trigger_seconds",
)  # fmt: skip
"""The settings of [stream] that a subscription may have of its own."""


def section_of(
    base: Settings, table: TableName, name: str, sink: Mapping[str, object], shape: Shape
) -> tuple[SinkSettings, StreamSettings]:
    """The sections [sink.NAME] and [stream] of a subscription.

    Raises SettingsError with a line for each fault: its name, what it must be, and the nearest name that there is.
    """
    for option in shape.stream:
        if option not in STREAM_NAMES:
            close = difflib.get_close_matches(option, STREAM_NAMES, n=1)
            hint = f"did you mean {close[0]}?" if close else f"a subscription may set {', '.join(STREAM_NAMES)}"
            raise RefusedRequestError(f"subscription {name}: unknown setting stream.{option}; {hint}")
    stream: dict[str, Any] = {**_plain(base.stream), **shape.stream, "sink": name, "where": {}, "columns": {}}
    # What [stream] says is for `tailrace stream`; a request that says nothing has server.snapshot, once it is made.
    stream[SNAPSHOT] = shape.stream.get(SNAPSHOT, NEVER)
    if shape.where is not None:
        stream["where"] = {str(table): shape.where}
    stream["columns"] = {f"{table}.{column}": treatment for column, treatment in shape.columns.items()}
    checked = settings_from({"sink": {name: dict(sink)}, "stream": stream}, f"subscription {name}")
    return checked.sink[name], checked.stream


def revealed(section: BaseModel) -> dict[str, object]:
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


def shown(section: BaseModel) -> dict[str, object]:
    """The same with stars for what is secret."""
    return {name: _shown(name, getattr(section, name)) for name in revealed(section)}


def _plain(section: BaseModel) -> dict[str, object]:
    return revealed(section)


def _value(value: object) -> object:
    match value:
        case SecretStr():
            return value.get_secret_value()
        case Properties():
            return value.reveal()
        case BaseModel():
            return revealed(value)
        case Mapping():
            return {str(name): _value(item) for name, item in value.items()}
        case tuple() | list():
            return [_value(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def _shown(name: str, value: object) -> object:
    match value:
        case SecretStr():
            return REDACTED
        case Properties():
            return {key: _shown(key, item) for key, item in value.root.items()}
        case BaseModel():
            return shown(value)
        case Mapping():
            return {str(key): _shown(str(key), item) for key, item in value.items()}
        case str():
            return REDACTED if is_secret_name(name) else redact(value)
        case _:
            return _value(value)
