"""A subscription: one named request for a table, its state, and who runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Self

from tailrace_schemas.errors import FencedError, SettingsError, TailraceError

_KEYSPACE: Final = re.compile(r"[\w*?]{1,100}")
_TABLE: Final = re.compile(r"[\w*?]{1,222}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
SNAPSHOT: Final = "snapshot"
"""The setting of [stream] that says whether the tables are read too: never, initial or only."""
NEVER: Final = "never"
INITIAL: Final = "initial"
ONLY: Final = "only"
ALL: Final = ""
"""Stands for all topics that have no reading of their own, as tailrace_spark.source.readings has it."""


class RefusedRequestError(SettingsError):
    """A request is wrong in itself: an unknown setting, a name that cannot be. Status 422."""


class UnknownSubscriptionError(TailraceError):
    """There is no such subscription, or the name fits several. Status 404."""


class ConflictError(TailraceError):
    """A request does not fit what exists: a name that is taken, a state that does not allow it. Status 409."""


class LostLeaseError(FencedError):
    """This worker does not own the subscription any more: another one may. It writes nothing of it from now on."""


class State(StrEnum):
    """What a subscription does. Workers run those that are active or failing."""

    ACTIVE = "active"
    PAUSED = "paused"
    FAILING = "failing"
    DONE = "done"
    """It asked for a snapshot only, and that has ended."""
    CANCELLED = "cancelled"


RUNNABLE: Final = (State.ACTIVE, State.FAILING)


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table of a cluster, or a pattern with `*` and `?` that tables of later join. `cluster` is the prefix of
    topics."""

    cluster: str
    keyspace: str
    table: str

    @classmethod
    def parse(cls, cluster: str, text: str) -> Self:
        """From KEYSPACE.TABLE. Raises RefusedRequestError."""
        keyspace, dot, table = text.partition(".")
        if not dot or not _KEYSPACE.fullmatch(keyspace) or not _TABLE.fullmatch(table):
            raise RefusedRequestError(f'table "{text}": must be KEYSPACE.TABLE, such as shop.orders or shop.*')
        return cls(cluster, keyspace, table)

    @property
    def pattern(self) -> bool:
        """Whether several tables may fit."""
        return any(sign in self.keyspace + self.table for sign in "*?")

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.table}"


def require_name(name: str) -> str:
    """A subscriber's name. Raises RefusedRequestError."""
    if not _NAME.fullmatch(name):
        raise RefusedRequestError(
            f'name "{name}": may have letters, digits, "_" and "-", a letter or digit first, at most 64 of them'
        )
    return name


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscription begins to read: `earliest`, `latest`, or at a time, in milliseconds since 1970."""

    word: str = EARLIEST
    milliseconds: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `earliest`, `latest` or an ISO time; one without a zone is in UTC. Raises RefusedRequestError."""
        if text in (EARLIEST, LATEST):
            return cls(text)
        try:
            time = datetime.fromisoformat(text)
            time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        except (ValueError, OverflowError):
            raise RefusedRequestError(
                f'start "{text}": must be earliest, latest, or a time such as 2026-05-01T12:00:00Z'
            ) from None
        # Rounded down: the last millisecond of the last year has none behind it. Kafka has no times before 1970.
        return cls("time", max(0, (time - _EPOCH) // timedelta(milliseconds=1)))

    def __str__(self) -> str:
        if self.milliseconds is None:
            return self.word
        return (_EPOCH + timedelta(milliseconds=self.milliseconds)).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the sink is given: a condition, treatments of columns by their names, and settings of [stream]."""

    where: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    stream: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where a subscription writes: a target, which the servers' settings have as [sink.TARGET], and of which type.

    `options` are the few settings that are the subscription's own: names within the target, and sizes.
    """

    type: str
    target: str
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics that progress is of: Kafka's id of each, and their readings.

    `begun`: the start has counted. Topics that come later are read from their beginning, where there was none too.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    readings: Mapping[str, str] = field(default_factory=dict)
    begun: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a subscriber asks for."""

    table: TableName
    name: str
    sink: Sink
    shape: Shape = Shape()
    start: Start = Start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A request as the meta database has it.

    `reason` and `action` are of a failing one: why, and what to do. `attempts` counts failures in a row. `revision`
    grows with each change of what is to be run; `token` with each change of owner: it fences the earlier ones.
    """

    id: int
    table: TableName
    name: str
    sink: Sink
    shape: Shape = Shape()
    start: Start = Start()
    state: State = State.ACTIVE
    reason: str = ""
    action: str = ""
    attempts: int = 0
    revision: int = 0
    token: int = 0
    owner: str | None = None
    lease_until: int | None = None
    created: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Tables of a pattern that its worker goes without, with the reasons: filter or masks do not fit them."""
    topics: Topics = Topics()

    @property
    def reference(self) -> str:
        """What people call it: KEYSPACE.TABLE/NAME."""
        return f"{self.table}/{self.name}"

    @property
    def snapshot(self) -> str:
        """Whether its tables are read: NEVER (of those that were made before there was a choice), INITIAL or ONLY."""
        return str(self.shape.stream.get(SNAPSHOT, NEVER))

    @property
    def sink_name(self) -> str:
        """The name of its sink, which no other subscription has or will have: sinks note their progress by it."""
        return f"{self.name}-{self.id}"
