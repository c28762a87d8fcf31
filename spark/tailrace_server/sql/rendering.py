"""CREATE SUBSCRIPTION as text, which `parse` reads as the same statement."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import Asked
from tailrace_server.sql.errors import StatementError
from tailrace_server.sql.parsing import parse
from tailrace_server.sql.statements import Create, Named

_NAME: Final = re.compile(r"\w+(-\w+)*")
_PART: Final = re.compile(r"[\w*?]+")


def create_of(spec: Asked) -> Create:
    """The statement of a request."""
    return Create(
        subscription=Named(spec.name, spec.table),
        target=spec.target,
        options=spec.options,
        columns=spec.columns,
        stream=spec.stream,
        where=spec.where,
        start=spec.start,
    )


def create_of_details(details: Answer) -> Create:
    """The statement that makes a subscription again."""
    request = Asked(
        table=details["table"],
        name=details["name"],
        target=details["target"],
        options=details["options"],
        where=details["where"],
        columns=details["columns"],
        stream=details["stream"],
        start=details["start"],
    )
    return create_of(request)


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
    return text if statements == [create] else _text(create, _in_dollars(create.where))


def _text(create: Create, where: str | None) -> str:
    lines = [f"CREATE SUBSCRIPTION {_name(create.subscription.name)} ON {_table(create.subscription.table or '')}"]
    lines.append(f"INTO {_name(create.target)}")
    clauses = (("OPTIONS", create.options), ("COLUMNS", create.columns), ("STREAM", create.stream))
    for clause, values in clauses:
        if values:
            lines.append(f"{clause} ({', '.join(f'{_name(name)} = {_value(item)}' for name, item in values.items())})")
    if where is not None:
        lines.append(f"WHERE {where}")
    if create.start != "earliest":
        lines.append(f"FROM {'LATEST' if create.start == 'latest' else _quoted(create.start)}")
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
