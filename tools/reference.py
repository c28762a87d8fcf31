"""The site's pages that are made from the code; here settings, errors with their exit codes, public functions."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import traceability
from commands import ROOT, commands
from pydantic import BaseModel, SecretStr

import tailrace.errors
import tailrace_schemas
import tailrace_schemas.errors
import tailrace_spark
import tailrace_spark.snapshot
from tailrace_common.properties.passthrough import Properties
from tailrace_common.settings import Settings
from tailrace_common.settings.sample import example_of, optional_section
from tailrace_common.settings.sinks import SINK_TYPES
from tailrace_schemas.errors import TailraceError

_SENTENCE_END: Final = re.compile(r"(?<=[.]) (?=[A-Z`])")
_CODES: Final = {
    0: "done",
    1: "failed",
    2: "wrong usage or settings",
    3: "finished, with something quarantined or dead-lettered",
    4: "data loss found, or rows that differ",
    5: "another process took over, or owns the node's log or the checkpoint; do not restart in a loop",
}


def settings() -> str:
    """The page of all settings: a table for each section."""
    defaults = Settings()
    parts = [f"# Settings\n\n{_SETTINGS}"]
    for name, field in Settings.model_fields.items():
        if name != "sink":
            parts += _section(f"[{name}]", getattr(defaults, name), field.description or "")
    for kind in sorted(SINK_TYPES.values(), key=lambda kind: str(kind.model_fields["type"].default)):
        required = {key: field.examples[0] for key, field in kind.model_fields.items() if _is_required(field)}
        title = f"[sink.NAME], type {kind.model_fields['type'].default}"
        parts += _section(title, kind(**required), kind.__doc__ or "")
    return "\n".join(parts)


_SETTINGS: Final = """\
[tailrace.toml](../../tailrace.toml) is the same as a file to copy from.
An environment variable wins over the file: `TAILRACE_CLUSTER__PORT` is `port` of `[cluster]`.
A secret may be in a file of its own: `password_file` instead of `password`.
"""


def _is_required(field: Any) -> bool:
    return bool(field.is_required() and field.examples)


def _section(title: str, section: BaseModel, words: str) -> Iterator[str]:
    yield f"## {title}\n\n{_cell(words)}\n"
    below: list[tuple[str, BaseModel, str]] = []
    optional: list[tuple[str, type[BaseModel], str]] = []
    if isinstance(section, Properties):
        rows = [(key, value, "") for key, value in {**type(section).examples, **section.root}.items()]
        yield "The names are the client's own. Some of them:\n"
    else:
        rows = []
        for name, field in type(section).model_fields.items():
            value = getattr(section, name)
            kind = optional_section(field)
            if isinstance(value, Properties):
                below.append((name, value, field.description or ""))
            elif kind is not None:
                optional.append((name, kind, field.description or ""))
            else:
                rows.append((name, value, field.description or ""))
    if rows:
        yield "| setting | default | meaning |\n| --- | --- | --- |"
        yield from (f"| `{name}` | {_value(value)} | {_cell(meaning)} |" for name, value, meaning in rows)
        yield ""
    for name, _, meaning in below:
        yield f"`{name}` is a table of properties, passed through: {_cell(meaning)}\n"
    for name, kind, meaning in optional:
        yield from _section(f"{title.removesuffix(']')}.{name}]", example_of(kind), f"Unset by default. {meaning}")


def _value(value: object) -> str:
    if value is None:
        return "unset"
    plain = value.get_secret_value() if isinstance(value, SecretStr) else value
    text = json.dumps(plain if not isinstance(plain, Path) else str(plain), default=str, ensure_ascii=False)
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    """Text for a cell: one line, and nothing that Markdown or HTML would take for its own."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")


def errors() -> str:
    """The page of exit codes and errors."""
    rows = "\n".join(f"| {code} | {words} |" for code, words in _CODES.items())
    parts = [f"# Exit codes and errors\n\n| exit code | meaning |\n| --- | --- |\n{rows}\n"]
    parts.append(
        "An error's message says what failed, where, and what to do next. Python programs catch these classes:\n"
    )
    parts.append("| error | exit code | meaning |\n| --- | --- | --- |")
    for module in (tailrace_schemas.errors, tailrace.errors):
        parts += [
            f"| `{module.__name__}.{name}` | {error.exit_code} | {_cell(inspect.getdoc(error) or '')} |"
            for name, error in vars(module).items()
            if _is_of(error, module)
        ]
    return "\n".join(parts) + "\n"


def _is_of(value: object, module: ModuleType) -> bool:
    return isinstance(value, type) and issubclass(value, TailraceError) and value.__module__ == module.__name__


def python() -> str:
    """The page of public functions, with their signatures and docstrings."""
    parts = ["# Python\n\nThe names of these modules' `__all__`; all others may change without notice."]
    for module in (tailrace_spark, tailrace_spark.snapshot, tailrace_schemas):
        parts.append(f"\n## {module.__name__}\n\n{_paragraphs(inspect.getdoc(module) or '')}\n")
        parts += [_entry(name, getattr(module, name)) for name in sorted(module.__all__)]
    return "\n".join(parts).rstrip() + "\n"


def _entry(name: str, value: Callable[..., object]) -> str:
    signature = ""
    if inspect.isfunction(value):
        shape = inspect.signature(value)
        text = _plain(f"{name}{shape}")
        if len(text) > 90:
            keywords = [
                index for index, given in enumerate(shape.parameters.values()) if given.kind == given.KEYWORD_ONLY
            ]
            lines = [f"    {_plain(str(given))},\n" for given in shape.parameters.values()]
            if keywords:
                lines.insert(keywords[0], "    *,\n")
            text = f"{name}(\n{''.join(lines)}) -> {_plain(str(shape.return_annotation))}"
        signature = f"\n```python\n{text}\n```\n"
    return f"### {name}\n{signature}\n{_paragraphs(inspect.getdoc(value) or '')}\n"


def _plain(text: str) -> str:
    return text.replace("'", "").replace("<built-in function time>", "time.time")


def _paragraphs(text: str) -> str:
    """A line for each sentence, an empty one between paragraphs."""
    return "\n\n".join(_SENTENCE_END.sub("\n", _cell(paragraph)) for paragraph in text.split("\n\n"))


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands,
    "reference/errors.md": errors,
    "reference/python.md": python,
    "reference/settings.md": settings,
    "traceability.md": partial(traceability.render, ROOT),
}
"""Each page of docs/ that is in the site only, and what writes it."""
