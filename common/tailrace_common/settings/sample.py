"""The sample settings file, made from the model, so that it is complete and cannot drift."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from tailrace_common.properties.passthrough import Properties
from tailrace_common.settings import Settings
from tailrace_common.settings.sinks import SINK_TYPES

_HEAD: Final = """\
The settings of Tailrace, every one of them, with its default. Written by `make generated` from the code.

A line that is commented out is unset by default. Environment variables win over this file: TAILRACE_, the section,
two underscores, the name: TAILRACE_CLUSTER__PORT=9142, TAILRACE_CLUSTER__CONTACT_POINTS=10.0.0.1,10.0.0.2,
TAILRACE_KAFKA__BOOTSTRAP_SERVERS=broker:9092, TAILRACE_SINK__LOCAL__URL=sqlite:///tailrace.db, of [sink.Local] too.
Lists may have commas, tables are JSON. A secret can stand in a file of its own: password_file, "sasl.password_file",
TAILRACE_KAFKA__SASL_PASSWORD_FILE. `tailrace check -c tailrace.toml` reaches what is named here."""
_WIDTH: Final = 116


def render_sample() -> str:
    """The text of `tailrace.toml`: loading it gives the defaults."""
    lines = list(_comment(_HEAD))
    defaults = Settings()
    for name, field in Settings.model_fields.items():
        value = getattr(defaults, name)
        if isinstance(value, dict):
            for key, entry in value.items():
                lines += ["", *_comment(field.description or ""), f"[{name}.{key}]", *_section(entry)]
            for kind in SINK_TYPES.values():
                if kind not in map(type, value.values()):
                    lines += ["", *_other(name, kind)]
        else:
            lines += ["", *_comment((type(value).__doc__ or "").split("\n")[0]), f"[{name}]", *_section(value)]
            lines += _below(name, value)
    return "\n".join(lines) + "\n"


def _section(section: BaseModel) -> Iterator[str]:
    if isinstance(section, Properties):
        yield from (f"{json.dumps(key)} = {_toml(value)}" for key, value in section.root.items())
        yield from (f"# {json.dumps(key)} = {_toml(value)}" for key, value in type(section).examples.items())
        return
    for name, field in sorted(type(section).model_fields.items(), key=lambda item: item[0] != "type"):
        value = getattr(section, name)
        if not isinstance(value, Properties) and optional_section(field) is None:
            yield from _comment(field.description or "")
            yield f"# {name} = {_toml(_example(field))}" if value is None else f"{name} = {_toml(value)}"


def _other(name: str, kind: type[BaseModel]) -> Iterator[str]:
    """A kind of section that the defaults have none of: commented out as a whole."""
    yield from _comment((kind.__doc__ or "").split("\n")[0])
    yield from _commented_out(f"{name}.{kind.model_fields['type'].default}", kind)


def _commented_out(title: str, kind: type[BaseModel]) -> Iterator[str]:
    yield f"# [{title}]"
    for line in _section(example_of(kind)):
        yield line if line.startswith("#") else f"# {line}"


def example_of(kind: type[BaseModel]) -> BaseModel:
    """A section with its defaults, and with the examples of settings that have none."""
    return kind(**{key: _example(field) for key, field in kind.model_fields.items() if field.is_required()})


def optional_section(field: FieldInfo) -> type[BaseModel] | None:
    """The kind of section that may stand there or be left out; None for a setting of another kind."""
    members: tuple[object, ...] = get_args(field.annotation)
    return next((member for member in members if isinstance(member, type) and issubclass(member, BaseModel)), None)


def _below(name: str, section: BaseModel) -> Iterator[str]:
    """Tables within a section come after all its values: TOML gives what follows a head to that table."""
    if isinstance(section, Properties):
        return
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        kind = optional_section(field)
        if isinstance(value, Properties):
            yield from ("", *_comment(field.description or ""), f"[{name}.{key}]", *_section(value))
        elif kind is not None:
            yield from ("", *_comment(field.description or ""), *_commented_out(f"{name}.{key}", kind))


def _comment(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield from textwrap.wrap(" ".join(paragraph.split()), _WIDTH, initial_indent="# ", subsequent_indent="# ")
        if paragraph != text.split("\n\n")[-1]:
            yield "#"


def _example(field: FieldInfo) -> object:
    if not field.examples:
        raise ValueError(f"a setting without default needs an example: {field.description}")
    return field.examples[0]


def _toml(value: object) -> str:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(name)} = {_toml(item)}' for name, item in value.items())} }}"
    return str(value)
