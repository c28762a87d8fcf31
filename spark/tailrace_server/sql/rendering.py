"""CREATE SUBSCRIPTION as text, which `parse` reads as the same statement."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any, Final

from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import Asked
from tailrace_server.sql.parsing import StatementError, parse
from tailrace_server.sql.statements import Create

_NAME: Final = re.compile(r"\w+(-\w+)*")
_PART: Final = re.compile(r"[\w*?]+")


def create_of(details: Answer) -> Create:
    """The statement that makes a subscription again."""
    return Create(Asked(**{field.name: details[field.name] for field in fields(Asked)}))


def render(create: Create) -> str:
    """The text of a statement, a clause in each line, without `;`."""
    condition = create.asked.where
    text = _text(create.asked, condition)
    if condition is None:
        return text
    try:
        statements = [parsed.statement for parsed in parse(text)]
    except StatementError:
        statements = []
    # What is no condition by itself, or has FROM or `;` in it, stands between dollars.
    return text if statements == [create] else _text(create.asked, _in_dollars(condition))


def _text(spec: Asked, where: str | None) -> str:
    lines = [f"CREATE SUBSCRIPTION {_name(spec.name)} ON {_table(spec.table)}", f"INTO {_name(spec.target)}"]
    clauses = (("OPTIONS", spec.options), ("COLUMNS", spec.columns), ("STREAM", spec.stream))
    for clause, values in clauses:
        if values:
            lines.append(f"{clause} ({', '.join(f'{_name(name)} = {_value(item)}' for name, item in values.items())})")
    if where is not None:
        lines.append(f"WHERE {where}")
    if spec.start != "earliest":
        lines.append(f"FROM {'LATEST' if spec.start == 'latest' else _quoted(spec.start)}")
    return "\n".join(lines)


def _value(value: Any) -> str:
    match value:
        case bool():
            return json.dumps(value).upper()
        case int() | float():
            return repr(value)
        case _:
            return _quoted(str(value))


def _name(name: str) -> str:
    if _NAME.fullmatch(name):
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
