"""The settings of a type of sink as fields of a form, and what people write there as settings again. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from tailrace_common.secrets import REDACTED
from tailrace_server.model.errors import RefusedRequestError
from tailrace_spark.sinks.registry import SINKS

_PREFIX: Final = "sink."
_PLACE: Final = re.compile(r"\bsink\.[^.\s]+\.(\w+)")
_FAULT_FIELDS: Final = (
    ("table ", "table"), ("name ", "name"), ("start ", "start"),
    ("stream.where", "where"), ("stream.columns", "columns"), ("stream: ", "columns"), ("stream.", "stream"),
)  # fmt: skip


class Kind(StrEnum):
    """How a setting is written."""

    TEXT = "text"
    NUMBER = "number"
    CHOICE = "choice"
    SECRET = "secret"  # noqa: S105 - a kind of field
    LINES = "lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A setting of a sink. `value` is what its field shows, `current` what is set where that is not shown in it.

    `main` ones come first; the others are below a fold.
    """

    name: str
    kind: Kind
    hint: str
    default: str = ""
    choices: tuple[str, ...] = ()
    main: bool = False
    value: str = ""
    current: str = ""

    @property
    def id(self) -> str:
        """The name of the field in the form."""
        return f"{_PREFIX}{self.name}"


def fields_of(kind: str) -> list[Field]:
    """The fields of a type of sink. Names of files are none: they would be files of the server.

    Raises RefusedRequestError for a type that there is not.
    """
    if kind not in SINKS:
        raise RefusedRequestError(f'there is no type of sink "{kind}"; the types: {", ".join(SINKS)}')
    model, address = SINKS[kind].settings, SINKS[kind].where
    return [
        _field(name, info, main=info.is_required() or name == address or _kind(info.annotation) is Kind.SECRET)
        for name, info in model.model_fields.items()
        if name != "type" and not name.endswith("_file")
    ]


def _field(name: str, info: FieldInfo, *, main: bool) -> Field:
    default = None if info.is_required() else info.get_default(call_default_factory=True)
    kind = _kind(info.annotation)
    plain = default is not None and kind in (Kind.TEXT, Kind.NUMBER, Kind.CHOICE)
    return Field(
        name=name,
        kind=kind,
        hint=info.description or "",
        default=_text(default) if plain else "",
        choices=_choices(info.annotation),
        main=main,
    )


def _kind(annotation: Any) -> Kind:
    annotation = _bare(annotation)
    if annotation is SecretStr:
        return Kind.SECRET
    if annotation is bool or get_origin(annotation) is Literal:
        return Kind.CHOICE
    if annotation in (int, float):
        return Kind.NUMBER
    if get_origin(annotation) is not None or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return Kind.LINES
    return Kind.TEXT


def _choices(annotation: Any) -> tuple[str, ...]:
    annotation = _bare(annotation)
    if annotation is bool:
        return "true", "false"
    return tuple(map(str, get_args(annotation))) if get_origin(annotation) is Literal else ()


def _bare(annotation: Any) -> Any:
    """Without what may be absent, and without limits."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, UnionType):
            present = [member for member in get_args(annotation) if member is not NoneType]
            if len(present) != 1:
                return str
            [annotation] = present
        else:
            return annotation


def filled(fields: Sequence[Field], settings: Mapping[str, Any]) -> list[Field]:
    """The fields with settings as a subscription shows them: what has stars, or many values, is not put into them."""
    return [_filled(field, settings.get(field.name)) for field in fields]


def _filled(field: Field, value: object) -> Field:
    if value is None:
        return field
    text = _text(value)
    if field.kind in (Kind.SECRET, Kind.LINES) or REDACTED in text:
        return replace(field, current=text)
    return replace(field, value=text)


def section_of_form(kind: str, fields: Sequence[Field], form: Mapping[str, str]) -> dict[str, Any]:
    """The section of a sink as somebody has filled it in; what is empty is unset. Raises FieldError."""
    section: dict[str, Any] = {"type": kind}
    for field in fields:
        text = form.get(field.id, "").strip()
        if text:
            section[field.name] = value_of(field, text)
    return section


def changes_of_form(fields: Sequence[Field], form: Mapping[str, str]) -> dict[str, Any]:
    """What differs from the fields as they were filled; None for what is to be unset. Raises FieldError."""
    changes: dict[str, Any] = {}
    for field in fields:
        text = form.get(field.id, "").strip()
        if form.get(f"unset.{field.id}"):
            changes[field.name] = None
        elif text != field.value:
            changes[field.name] = value_of(field, text) if text else None
    return changes


class FieldError(Exception):
    """A field cannot be read; `field` is its name in the form."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.field = field


def value_of(field: Field, text: str) -> Any:
    """The value that somebody wrote."""
    if field.kind is Kind.CHOICE:
        return {"true": True, "false": False}.get(text, text) if field.choices[0] == "true" else text
    if field.kind is Kind.NUMBER:
        return typed(text)
    if field.kind is not Kind.LINES:
        return text
    if "=" not in text:
        return [typed(line) for line in text.split("\n") if line.strip()]
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FieldError(field.id, f'must be lines such as name = "value": {error}') from None


def pairs_of(name: str, text: str) -> dict[str, str]:
    """Lines of NAME = VALUE. Raises FieldError."""
    pairs: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise FieldError(name, f"{line}: must be NAME = VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def typed(text: str) -> Any:
    """A value as TOML reads it, so that 5 is a number and true is true; else it stays text."""
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def faults_of(error: Exception, fields: Sequence[Field]) -> dict[str, str]:
    """The lines of a refusal by the field that they are about; under an empty name what is about none."""
    faults: dict[str, str] = {}
    if isinstance(error, FieldError):
        return {error.field: str(error)}
    for line in str(error).splitlines():
        name = _field_name(line, fields)
        faults[name] = f"{faults[name]} {line}" if name in faults else line
    return faults


def _field_name(line: str, fields: Sequence[Field]) -> str:
    setting = _PLACE.search(line)
    if setting is not None and any(field.name == setting[1] for field in fields):
        return f"{_PREFIX}{setting[1]}"
    words = re.sub(r"^subscription [^:]+: (unknown setting )?", "", line)
    return next((name for start, name in _FAULT_FIELDS if words.startswith(start)), "")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)
