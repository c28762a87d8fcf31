"""What people write into a form as settings, and where the form shows what is wrong with it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tailrace_server.operations.asking import typed

_FAULT_FIELDS: Final = (
    ("table ", "table"), ("target ", "target"), ("name ", "name"), ("start ", "start"),
    ("stream.where", "where"), ("stream.columns", "columns"), ("stream: ", "columns"), ("stream.", "stream"),
    ("options.", "options"), ("sink.", "options"),
)  # fmt: skip


class FieldError(Exception):
    """A field cannot be read; `field` is its name in the form."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.field = field


def pairs_of(name: str, form: Mapping[str, str]) -> dict[str, str]:
    """The lines NAME = VALUE of a field. Raises FieldError."""
    pairs: dict[str, str] = {}
    for line in filter(None, map(str.strip, form.get(name, "").split("\n"))):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise FieldError(name, f"{line}: must be NAME = VALUE")
        pairs[key.strip()] = value.strip()
    return pairs


def typed_pairs(name: str, form: Mapping[str, str]) -> dict[str, Any]:
    """The same with values as TOML reads them, so that 5 is a number and true is true; else they stay text."""
    return {key: typed(text) for key, text in pairs_of(name, form).items()}


def lines_of(values: Mapping[str, Any]) -> str:
    """Settings as lines that are read as the same settings."""
    return "\n".join(f"{name} = {_written(value)}" for name, value in values.items())


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def faults_of(error: Exception) -> dict[str, str]:
    """The lines of a refusal by the field that they are about; under an empty name what is about none."""
    if isinstance(error, FieldError):
        return {error.field: str(error)}
    faults: dict[str, str] = {}
    for line in str(error).splitlines():
        words = re.sub(r"^subscription [^:]+: (unknown setting )?", "", line)
        name = next((name for start, name in _FAULT_FIELDS if words.startswith(start)), "")
        faults[name] = f"{faults[name]} {line}" if name in faults else line
    return faults
