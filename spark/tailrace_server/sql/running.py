"""Runs statements as operations. Faults of the operations point at the word that they are about."""

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import fields
from typing import Any, Final

from tailrace_schemas.errors import SettingsError
from tailrace_server.model.subscription import ConflictError, RefusedRequestError, UnknownSubscriptionError
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import Asked, offsets_of
from tailrace_server.operations.operations import Operations
from tailrace_server.sql.parsing import (
    Alter,
    Create,
    One,
    Parsed,
    Reset,
    ShowAll,
    Statement,
    StatementError,
    Verb,
    parse,
)

_NAME: Final = re.compile(r"\w+(-\w+)*")
_PART: Final = re.compile(r"[\w*?]+")


def run(parsed: Parsed, operations: Operations, *, check: bool = True) -> list[Answer]:
    """Run a statement: its rows. With `check` requests are looked at before they are kept.

    Raises StatementError, what the operations raise with the place, and ServiceError.
    """
    try:
        return _run(parsed.statement, operations, check=check)
    except (ConflictError, UnknownSubscriptionError) as error:
        raise type(error)(parsed.pointing(str(error))) from None
    except (RefusedRequestError, SettingsError) as error:
        raise StatementError(parsed.pointing(str(error))) from None


def _run(statement: Statement, operations: Operations, *, check: bool) -> list[Answer]:
    match statement:
        case ShowAll():
            rows = operations.all(cancelled=statement.cancelled)
            return [row for row in rows if _is_like(row, statement.like)]
        case One():
            return [_one(statement, operations)]
        case Create():
            return [operations.subscribe(statement.asked, check=check)[0]]
        case Alter():
            return [operations.alter(statement.reference, statement.alteration, check=check)]
        case Reset():
            if statement.offsets is None:
                return [operations.reset(statement.reference, statement.start, snapshot=statement.snapshot)]
            offsets = offsets_of(statement.offsets)
            return [operations.reset(statement.reference, None, offsets, snapshot=statement.snapshot)]


def _one(statement: One, operations: Operations) -> Answer:
    match statement.verb:
        case Verb.SHOW:
            return operations.details(statement.reference)
        case Verb.SHOW_CREATE:
            details = operations.details(statement.reference)
            return {"reference": details["reference"], "statement": render(create_of(details))}
        case Verb.PAUSE:
            return operations.pause(statement.reference)
        case Verb.RESUME:
            return operations.resume(statement.reference)
        case Verb.DROP:
            return operations.cancel(statement.reference)


def _is_like(row: Answer, pattern: str | None) -> bool:
    """By fnmatch, which never goes back: whoever may read may write any pattern."""
    if pattern is None:
        return True
    signs = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
    expression = "".join(signs.get(sign, sign) for sign in pattern)
    return any(fnmatch.fnmatchcase(str(row[name]), expression) for name in ("name", "reference"))


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
