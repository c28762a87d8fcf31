"""Runs statements as operations. Faults of the operations point at the word that they are about."""

from __future__ import annotations

import fnmatch

from tailrace_schemas.errors import SettingsError
from tailrace_server.model.errors import ConflictError, RefusedRequestError, UnknownSubscriptionError
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import offsets_of
from tailrace_server.operations.operations import Operations
from tailrace_server.sql.parsing import Parsed, StatementError
from tailrace_server.sql.rendering import create_of, render
from tailrace_server.sql.statements import Alter, Create, One, Reset, ShowAll, Statement, Verb


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
