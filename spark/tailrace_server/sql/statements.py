"""Statements as values. A subscription is a reference as the operations take it: KEYSPACE.TABLE/NAME, or NAME."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import Alteration


class Verb(StrEnum):
    """What is done to one subscription without more words, as the grammar calls it."""

    SHOW = "show_one"
    SHOW_CREATE = "show_create"
    PAUSE = "pause"
    RESUME = "resume"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Create:
    """CREATE SUBSCRIPTION."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class ShowAll:
    """SHOW [ALL] SUBSCRIPTIONS [LIKE]: cancelled ones too, and those whose name or reference is like a pattern."""

    cancelled: bool = False
    like: str | None = None


@dataclass(frozen=True, slots=True)
class One:
    """SHOW SUBSCRIPTION and others that have its reference alone."""

    verb: Verb
    reference: str


@dataclass(frozen=True, slots=True)
class Alter:
    """ALTER SUBSCRIPTION."""

    reference: str
    alteration: Alteration


@dataclass(frozen=True, slots=True)
class Reset:
    """RESET SUBSCRIPTION FROM a start, or from offsets as JSON; WITH SNAPSHOT the tables too.

    Without a start, which only WITH SNAPSHOT allows, the log goes on where it is.
    """

    reference: str
    start: str | None = "earliest"
    offsets: str | None = None
    snapshot: bool = False


Statement = Create | ShowAll | One | Alter | Reset


def reads(statement: Statement) -> bool:
    """Whether it changes nothing."""
    return isinstance(statement, ShowAll) or (
        isinstance(statement, One) and statement.verb in (Verb.SHOW, Verb.SHOW_CREATE)
    )
