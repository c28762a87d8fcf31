"""Runs statements as operations. Faults of the operations point at the word that they are about."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.model.errors import ConflictError, RefusedRequestError, UnknownSubscriptionError
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import Asked, secret_names
from tailrace_server.operations.operations import Alteration, Operations
from tailrace_server.sql.errors import StatementError
from tailrace_server.sql.parsing import Parsed
from tailrace_server.sql.rendering import create_of_details, render
from tailrace_server.sql.statements import (
    Alter,
    Bound,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What statements refer to outside of them.

    `sections` gives a [sink.NAME] of the settings, `sinks` makes of settings what the operations take, such as the
    content of files for their names. `values` are those of :NAME. With `check` requests are looked at
    before they are kept.
    """

    sections: Callable[[str], Mapping[str, Any]]
    sinks: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    values: Mapping[str, Any]
    check: bool = True


def run(parsed: Parsed, operations: Operations, surroundings: Surroundings) -> Result:
    """Run a statement. Raises StatementError, what the operations raise with the place, and ServiceError."""
    try:
        return _run(parsed.statement, operations, surroundings)
    except (ConflictError, UnknownSubscriptionError) as error:
        raise type(error)(parsed.pointing(str(error))) from None
    except StatementError:
        raise
    except (RefusedRequestError, SettingsError) as error:
        raise StatementError(parsed.pointing(str(error))) from None


def _run(statement: Statement, operations: Operations, surroundings: Surroundings) -> Result:
    match statement:
        case Create():
            return _changed(operations.subscribe(asked_of(statement, surroundings), check=surroundings.check)[0])
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
            return _changed(_alter(statement, operations, surroundings))
        case Reset():
            offsets = None if statement.offsets is None else offsets_in(statement.offsets)
            start = None if offsets is not None else statement.start
            reference, snapshot = statement.subscription.reference, statement.snapshot
            return _changed(operations.reset(reference, start, offsets, snapshot=snapshot))
        case Drop():
            return _changed(operations.cancel(statement.subscription.reference))


def asked_of(create: Create, surroundings: Surroundings) -> Asked:
    """The request of a statement. Raises RefusedRequestError, SettingsError."""
    section = {"type": create.kind} if create.section is None else dict(surroundings.sections(create.section))
    _require_no_secrets(create.subscription.name, str(section["type"]), create.options)
    options = _filled(create.options, surroundings.values)
    return Asked(
        table=create.subscription.table or "",
        name=create.subscription.name,
        sink=surroundings.sinks({**section, **options}),
        where=create.where,
        columns=_texts(create.columns),
        stream=_filled(create.stream, surroundings.values),
        start=create.start,
    )


def _alter(alter: Alter, operations: Operations, surroundings: Surroundings) -> Answer:
    reference = alter.subscription.reference
    if alter.options:
        kind = str(operations.details(reference)["sink"])
        _require_no_secrets(alter.subscription.name, kind, alter.options)
    alteration = Alteration(
        sink=surroundings.sinks(_filled(alter.options, surroundings.values)),
        where=alter.where,
        columns=_texts(alter.columns),
        stream=_filled(alter.stream, surroundings.values),
    )
    return operations.alter(reference, alteration, check=surroundings.check)


def offsets_in(text: str) -> dict[KafkaPartition, int]:
    """{"TOPIC": {"PARTITION": OFFSET}} out of JSON. Raises RefusedRequestError."""
    try:
        return {
            (str(topic), int(partition)): int(offset)
            for topic, partitions in json.loads(text).items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise RefusedRequestError(f'offsets: must be {{"TOPIC": {{"PARTITION": OFFSET}}}}: {error}') from None


def _changed(answer: Answer) -> Result:
    return Result(Shown.CHANGED, [answer])


def _is_like(row: Answer, pattern: str | None) -> bool:
    if pattern is None:
        return True
    signs = {"%": ".*", "_": "."}
    expression = re.compile("".join(signs.get(sign) or re.escape(sign) for sign in pattern), re.DOTALL)
    return any(expression.fullmatch(str(row[name])) for name in ("name", "reference"))


def _require_no_secrets(name: str, kind: str, options: Mapping[str, Any]) -> None:
    for option in secret_names(kind, dict(_leaves(options, ""))):
        raise RefusedRequestError(
            f"sink.{name}.{option}: is a secret, and statements stay in histories and logs. Put it into a file: "
            f"{option}_file = 'FILE'; or give it beside the statement, as :{option.replace('.', '_')}"
        )


def _leaves(options: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    """Settings with their whole names, but for those that stand outside the statement or are unset."""
    leaves: list[tuple[str, Any]] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            leaves += _leaves(value, f"{prefix}{name}.")
        elif value is not None and not isinstance(value, Bound):
            leaves.append((f"{prefix}{name}", value))
    return leaves


def _filled(values: Mapping[str, Any], bound: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _fill(value, bound) for name, value in values.items()}


def _fill(value: Any, bound: Mapping[str, Any]) -> Any:
    match value:
        case Bound():
            if value.name not in bound:
                raise RefusedRequestError(f":{value.name}: has no value; given: {', '.join(sorted(bound)) or 'none'}")
            return bound[value.name]
        case Mapping():
            return _filled(value, bound)
        case list():
            return [_fill(item, bound) for item in value]
        case _:
            return value


def _texts(columns: Mapping[str, Any]) -> dict[str, Any]:
    for name, treatment in columns.items():
        if not isinstance(treatment, str | None):
            raise RefusedRequestError(f"columns.{name}: the treatment must be a text: 'drop', 'mask', 'hash'")
    return dict(columns)
