"""CREATE SUBSCRIPTION as text, which `parse` reads as the same statement."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tailrace_common.secrets import REDACTED
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import Asked
from tailrace_server.sql.errors import StatementError
from tailrace_server.sql.parsing import parse
from tailrace_server.sql.statements import Bound, Create, Named

_NAME: Final = re.compile(r"\w+(-\w+)*")
_PART: Final = re.compile(r"[\w*?]+")
_KEYWORD: Final = "SINK"


def create_of(spec: Asked) -> Create:
    """The statement of a request. `Bound` values of its sink stay."""
    sink = dict(spec.sink)
    kind = sink.pop("type", None)
    return Create(
        subscription=Named(spec.name, spec.table),
        kind=None if kind is None else str(kind),
        options=sink,
        columns=spec.columns,
        stream=spec.stream,
        where=spec.where,
        start=spec.start,
    )


def create_of_details(details: Answer) -> Create:
    """The statement that makes a subscription again. A secret is a value `:NAME`, of its setting's name."""
    request = Asked(
        table=details["table"],
        name=details["name"],
        sink=_without_secrets({"type": details["sink"], **details["settings"]}, ()),
        where=details["where"],
        columns=details["columns"],
        stream=details["stream"],
        start=details["start"],
    )
    return create_of(request)


def _without_secrets(value: Any, path: tuple[str, ...]) -> Any:
    match value:
        case Mapping():
            return {name: _without_secrets(item, (*path, str(name))) for name, item in value.items()}
        case list() | tuple():
            return [_without_secrets(item, (*path, str(index))) for index, item in enumerate(value)]
        case str() if REDACTED in value:
            return Bound(re.sub(r"\W", "_", "_".join(path)))
        case _:
            return value


def render(create: Create) -> str:
    """The text of a statement, a clause in each line, without `;`."""
    if create.where is None:
        return _text(create, None)
    text = _text(create, create.where)
    try:
        statements = [parsed.statement for parsed in parse(text)]
    except StatementError:
        statements = []
    # What is no condition by itself, or has FROM or `;` in it, stands between dollars.
    return text if statements == [_plain(create)] else _text(create, _in_dollars(create.where))


def _plain(create: Create) -> Create:
    """With lists as `parse` makes them."""
    options = {name: _listed(value) for name, value in create.options.items()}
    stream = {name: _listed(value) for name, value in create.stream.items()}
    return replace(create, options=options, columns=dict(create.columns), stream=stream)


def _listed(value: Any) -> Any:
    match value:
        case Mapping():
            return {name: _listed(item) for name, item in value.items()}
        case list() | tuple():
            return [_listed(item) for item in value]
        case _:
            return value


def _text(create: Create, where: str | None) -> str:
    into = f"SINK {_name(create.section)}" if create.section is not None else _name(create.kind or "")
    lines = [f"CREATE SUBSCRIPTION {_name(create.subscription.name)} ON {_table(create.subscription.table or '')}"]
    lines.append(f"INTO {into}")
    if create.options:
        lines.append(f"OPTIONS ({', '.join(_settings(create.options, ()))})")
    for clause, values in (("COLUMNS", create.columns), ("STREAM", create.stream)):
        if values:
            lines.append(f"{clause} ({', '.join(f'{_name(name)} = {_value(item)}' for name, item in values.items())})")
    if where is not None:
        lines.append(f"WHERE {where}")
    if create.start != "earliest":
        lines.append(f"FROM {'LATEST' if create.start == 'latest' else _quoted(create.start)}")
    return "\n".join(lines)


def _settings(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _settings(value, (*path, name))
        else:
            yield f"{_dotted((*path, name))} = {_value(value)}"


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(map(_name, path))


def _value(value: Any) -> str:
    match value:
        case Bound():
            return f":{value.name}"
        case None | bool():
            return json.dumps(value).upper()
        case int() | float():
            return repr(value)
        case Mapping():
            return "{" + ", ".join(f"{_name(name)} = {_value(item)}" for name, item in value.items()) + "}"
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            return _quoted(str(value))


def _name(name: str) -> str:
    if _NAME.fullmatch(name) and name.upper() != _KEYWORD:
        return name
    return '"' + name.replace('"', '""') + '"'


def _table(table: str) -> str:
    keyspace, _, name = table.partition(".")
    return ".".join(text if _PART.fullmatch(text) else _name(text) for text in (keyspace, name))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _in_dollars(text: str) -> str:
    count, tag = 0, "$$"
    while tag in text + "$":
        count += 1
        tag = f"$q{count}$"
    return f"{tag}{text}{tag}"
