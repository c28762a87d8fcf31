"""Statements as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Named:
    """A subscription: its name, and the table where the name is not the only one."""

    name: str
    table: str | None = None

    @property
    def reference(self) -> str:
        """As the operations take it: KEYSPACE.TABLE/NAME, or NAME."""
        return self.name if self.table is None else f"{self.table}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """CREATE SUBSCRIPTION."""

    subscription: Named
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    stream: Mapping[str, Any] = field(default_factory=dict)
    where: str | None = None
    start: str = "earliest"


@dataclass(frozen=True, slots=True)
class ShowAll:
    """SHOW [ALL] SUBSCRIPTIONS [LIKE]: cancelled ones too, and those whose name or reference is like a pattern."""

    cancelled: bool = False
    like: str | None = None


@dataclass(frozen=True, slots=True)
class ShowOne:
    """SHOW SUBSCRIPTION."""

    subscription: Named


@dataclass(frozen=True, slots=True)
class ShowCreate:
    """SHOW CREATE SUBSCRIPTION."""

    subscription: Named


@dataclass(frozen=True, slots=True)
class Pause:
    """PAUSE SUBSCRIPTION."""

    subscription: Named


@dataclass(frozen=True, slots=True)
class Resume:
    """RESUME SUBSCRIPTION."""

    subscription: Named


@dataclass(frozen=True, slots=True, kw_only=True)
class Alter:
    """ALTER SUBSCRIPTION: what is set, None to unset one. `where` and `target` are as in the operations' Alteration."""

    subscription: Named
    target: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Any] = field(default_factory=dict)
    stream: Mapping[str, Any] = field(default_factory=dict)
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Reset:
    """RESET SUBSCRIPTION FROM a start, or from offsets as JSON; WITH SNAPSHOT the tables too.

    Without a start, which only WITH SNAPSHOT allows, the log goes on where it is.
    """

    subscription: Named
    start: str | None = "earliest"
    offsets: str | None = None
    snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP SUBSCRIPTION."""

    subscription: Named


Statement = Create | ShowAll | ShowOne | ShowCreate | Pause | Resume | Alter | Reset | Drop
