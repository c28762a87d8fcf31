"""Runs statements as operations. Faults of the operations point at the word that they are about."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.model.errors import ConflictError, RefusedRequestError, UnknownSubscriptionError
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import Alteration, Operations
from tailrace_server.sql.errors import StatementError
from tailrace_server.sql.parsing import Parsed
from tailrace_server.sql.rendering import create_of_details, render
from tailrace_server.sql.statements import (
    Alter,
    Create,
    Drop,
    Pause,
    Reset,
    Resume,
    ShowAll,
    ShowCreate,
    ShowOne,
    Statement,
)


class Shown(Enum):
    """What a statement answers: subscriptions, one with its details, or what has changed."""

    LIST = "list"
    DETAILS = "details"
    STATEMENT = "statement"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Result:
    """The answers of a statement."""

    shown: Shown
    rows: Sequence[Answer]


def run(parsed: Parsed, operations: Operations, *, check: bool = True) -> Result:
    """Run a statement; with `check` requests are looked at before they are kept.

    Raises StatementError, what the operations raise with the place, and ServiceError.
    """
    try:
        return _run(parsed.statement, operations, check=check)
    except (ConflictError, UnknownSubscriptionError) as error:
        raise type(error)(parsed.pointing(str(error))) from None
    except StatementError:
        raise
    except (RefusedRequestError, SettingsError) as error:
        raise StatementError(parsed.pointing(str(error))) from None


def _run(statement: Statement, operations: Operations, *, check: bool) -> Result:
    match statement:
        case Create():
            return _changed(operations.subscribe(asked_of(statement), check=check)[0])
        case ShowAll():
            rows = operations.all(cancelled=statement.cancelled)
            return Result(Shown.LIST, [row for row in rows if _is_like(row, statement.like)])
        case ShowOne():
            return Result(Shown.DETAILS, [operations.details(statement.subscription.reference)])
        case ShowCreate():
            details = operations.details(statement.subscription.reference)
            answer = {"reference": details["reference"], "statement": render(create_of_details(details))}
            return Result(Shown.STATEMENT, [answer])
        case Pause():
            return _changed(operations.pause(statement.subscription.reference))
        case Resume():
            return _changed(operations.resume(statement.subscription.reference))
        case Alter():
            return _changed(operations.alter(statement.subscription.reference, _alteration(statement), check=check))
        case Reset():
            offsets = None if statement.offsets is None else offsets_in(statement.offsets)
            start = None if offsets is not None else statement.start
            reference, snapshot = statement.subscription.reference, statement.snapshot
            return _changed(operations.reset(reference, start, offsets, snapshot=snapshot))
        case Drop():
            return _changed(operations.cancel(statement.subscription.reference))


def asked_of(create: Create) -> Asked:
    """The request of a statement. Raises RefusedRequestError."""
    return Asked(
        table=create.subscription.table or "",
        name=create.subscription.name,
        target=create.target,
        options=create.options,
        where=create.where,
        columns=_texts(create.columns),
        stream=create.stream,
        start=create.start,
    )


def _alteration(alter: Alter) -> Alteration:
    return Alteration(
        target=alter.target,
        options=alter.options,
        where=alter.where,
        columns=_texts(alter.columns),
        stream=alter.stream,
    )


def offsets_in(text: str) -> dict[KafkaPartition, int]:
    """{"TOPIC": {"PARTITION": OFFSET}} out of JSON. Raises RefusedRequestError."""
    try:
        return {
            (str(topic), int(partition)): int(offset)
            for topic, partitions in json.loads(text).items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        raise RefusedRequestError('offsets: must be {"TOPIC": {"PARTITION": OFFSET}}') from None


def _changed(answer: Answer) -> Result:
    return Result(Shown.CHANGED, [answer])


def _is_like(row: Answer, pattern: str | None) -> bool:
    """By fnmatch, which never goes back: whoever may read may write any pattern."""
    if pattern is None:
        return True
    signs = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
    expression = "".join(signs.get(sign, sign) for sign in pattern)
    return any(fnmatch.fnmatchcase(str(row[name]), expression) for name in ("name", "reference"))


def _texts(columns: Mapping[str, Any]) -> dict[str, Any]:
    for name, treatment in columns.items():
        if not isinstance(treatment, str | None):
            raise RefusedRequestError(f"columns.{name}: the treatment must be a text: 'drop', 'mask', 'hash'")
    return dict(columns)
