"""The operations on subscriptions, on the meta database itself; the HTTP API offers the same ones to its clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol
from uuid import uuid4

from tailrace_common.cli.checks import Check
from tailrace_common.settings import Settings
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model import transitions
from tailrace_server.model.subscription import (
    EARLIEST,
    RefusedRequestError,
    Request,
    Start,
    State,
    Subscription,
    TableName,
    UnknownSubscriptionError,
    require_name,
)
from tailrace_server.operations.answers import Answer, Kept, answer_of, details_of, time_of
from tailrace_server.operations.asking import (
    Asked,
    Body,
    Value,
    checked,
    require_offsets,
    require_snapshots,
    with_snapshot,
)

Examine = Callable[[Settings, Request], Sequence[Check]]
"""Looks at what a request is about: tables, columns, the sink. It raises nothing."""

SOURCE: Final = "source"
"""The check that says whether tables are known: what it finds is no fault of the request."""
IN_PART: Final = ", in part"
"""How the name of a check ends that is well, and of which people should know nevertheless."""
_ANYWAY: Final = "To keep it all the same, as a worker may see more than this: --unchecked, or check=false over HTTP"


@dataclass(frozen=True, kw_only=True)
class Alteration(Body):
    """What is to be another: options, treatments of columns and settings of [stream] by name, None to unset one.

    `where` is the new condition, an empty one to have none, None to leave it as it is. `target` is another name of the
    target, or one that has what was written so far. `revision` is that of the details from which it was made; None: as
    it is at this moment.
    """

    target: str | None = None
    options: Mapping[str, Value | None] = field(default_factory=dict)
    where: str | None = None
    columns: Mapping[str, str | None] = field(default_factory=dict)
    stream: Mapping[str, Value | None] = field(default_factory=dict)
    revision: int | None = None

    def of(self, subscription: Subscription) -> Asked:
        """What a subscription asks for with it."""
        shape = subscription.shape
        return Asked(
            table=str(subscription.table),
            name=subscription.name,
            target=subscription.sink.target if self.target is None else self.target,
            options=_with(subscription.sink.options, self.options),
            where=shape.where if self.where is None else self.where or None,
            columns=_with(shape.columns, self.columns),
            stream=_with(shape.stream, self.stream),
            start=str(subscription.start),
        )


class Operations(Protocol):
    """What a command or a request can have done. A reference is KEYSPACE.TABLE/NAME, or NAME where it is the only one.

    Each raises UnknownSubscriptionError, ConflictError, RefusedRequestError or ServiceError.
    """

    def subscribe(self, spec: Asked, *, check: bool = True) -> tuple[Answer, bool]:
        """The subscription, and whether it is new.

        With `check` the table, its columns and the sink are looked at first. The answer has `notes` on what was seen.
        """

    def declare(self, spec: Asked, *, dry_run: bool = False, check: bool = True, paused: bool = False) -> Answer:
        """Make it so: a new subscription, or the existing one with exactly these settings. With `dry_run` nothing is.

        A new one is `paused` from its beginning: else a worker could take it up before a pause comes.
        The answer has `reference`, `change` (subscribe, alter, none), `differences` in words, and the `state` before.
        What changes is checked as by `subscribe`.
        """

    def all(self, *, cancelled: bool = False) -> Sequence[Answer]:
        """All of the cluster."""

    def details(self, reference: str) -> Answer:
        """One with its settings and progress."""

    def pause(self, reference: str) -> Answer:
        """Stop it; its progress stays."""

    def resume(self, reference: str) -> Answer:
        """Go on."""

    def alter(self, reference: str, alteration: Alteration, *, check: bool = True) -> Answer:
        """Run it with other settings, which are checked as by `subscribe`."""

    def reset(
        self,
        reference: str,
        start: str | None = None,
        offsets: Mapping[KafkaPartition, int] | None = None,
        *,
        snapshot: bool = False,
    ) -> Answer:
        """Read again, from a start or from offsets; with `snapshot` the tables too, and the log only if it is named."""

    def cancel(self, reference: str) -> Answer:
        """End it for good; what it has written stays."""

    def audit(self, reference: str | None, limit: int) -> Sequence[Answer]:
        """Who changed what, the newest first."""


class DirectOperations:
    """As `Operations` says, on a meta database, in the name of `user`."""

    def __init__(
        self, subscriptions: Subscriptions, settings: Settings, user: str, examine: Examine | None = None
    ) -> None:
        """`examine` looks at tables and sink of a request before it is kept; None: nothing is looked at."""
        self._subscriptions = subscriptions
        self._settings = settings
        self._user = user
        self._examine = examine

    def subscribe(self, spec: Asked, *, check: bool = True) -> tuple[Answer, bool]:
        existing, request = self._requested(spec)
        notes = self._require_well(request) if check and existing is None else []
        subscription, is_new = self._subscriptions.subscribe(request, self._user)
        return {**answer_of(subscription, Kept()), "notes": notes}, is_new

    def _require_well(self, request: Request) -> list[str]:
        """What is worth saying of a request. Raises RefusedRequestError for what is wrong with it."""
        if self._examine is None:
            return []
        checks = self._examine(self._settings, request)
        faults = [check for check in checks if not check.ok and check.name != SOURCE]
        if faults:
            lines = [f"subscription {request.name}: {_sentence(check)}" for check in faults]
            raise RefusedRequestError("\n".join([*lines, _ANYWAY]))
        return [_sentence(check) for check in checks if not check.ok or check.name.endswith(IN_PART)]

    def _requested(self, spec: Asked) -> tuple[Subscription | None, Request]:
        """The subscription that has the name, and what is asked for."""
        table = TableName.parse(self._settings.topics.prefix, spec.table)
        existing = self._subscriptions.find(table, require_name(spec.name))
        return existing, checked(with_snapshot(spec, existing, self._settings), self._settings)

    def declare(self, spec: Asked, *, dry_run: bool = False, check: bool = True, paused: bool = False) -> Answer:
        existing, request = self._requested(spec)
        reference = f"{request.table}/{request.name}"
        if existing is None:
            if check:
                self._require_well(request)
            if not dry_run:
                self._subscriptions.subscribe(request, self._user, State.PAUSED if paused else State.ACTIVE)
            return {"reference": reference, "change": "subscribe", "differences": [], "state": None}
        altered = partial(transitions.altered, sink=request.sink, shape=request.shape, revision=existing.revision)
        altered(existing)  # raises for another target
        lines = _differences(existing, request)
        if lines and check:
            self._require_well(request)
        if lines and not dry_run:
            self._subscriptions.change(existing.id, "alter", self._user, altered)
        change = "alter" if lines else "none"
        return {"reference": reference, "change": change, "differences": lines, "state": str(existing.state)}

    def all(self, *, cancelled: bool = False) -> Sequence[Answer]:
        listed = self._subscriptions.all(self._settings.topics.prefix, cancelled=cancelled)
        kept = self._kept([subscription.id for subscription in listed])
        return [answer_of(subscription, kept[subscription.id]) for subscription in listed]

    def details(self, reference: str) -> Answer:
        subscription = self._resolved(reference)
        return details_of(subscription, self._kept([subscription.id])[subscription.id])

    def _kept(self, identities: list[int]) -> dict[int, Kept]:
        progress, snapshots = self._subscriptions.progress(identities), self._subscriptions.snapshots(identities)
        now, deliveries = self._subscriptions.deliveries(identities)
        workers = self._subscriptions.workers(self._settings.topics.prefix)
        lease = round(1000 * self._settings.server.lease_seconds)
        return {
            identity: Kept(
                progress=progress[identity],
                ranges=snapshots.get(identity),
                delivery=deliveries[identity],
                now=now,
                lease=lease,
                workers=workers,
            )
            for identity in identities
        }

    def pause(self, reference: str) -> Answer:
        return self._changed(reference, "pause", transitions.paused)

    def resume(self, reference: str) -> Answer:
        return self._changed(reference, "resume", transitions.resumed)

    def cancel(self, reference: str) -> Answer:
        return self._changed(reference, "cancel", transitions.cancelled)

    def reset(
        self,
        reference: str,
        start: str | None = None,
        offsets: Mapping[KafkaPartition, int] | None = None,
        *,
        snapshot: bool = False,
    ) -> Answer:
        require_offsets(offsets or {})
        restarted = partial(transitions.restarted, reading=uuid4().hex[:12], snapshot=snapshot)
        if snapshot:
            subscription = self._resolved(reference)
            require_snapshots(subscription.name, subscription.sink.type)
            if start is None and offsets is None:
                return self._changed(reference, "reset", partial(restarted, start=None), snapshot=True)
        restarted = partial(restarted, start=Start.parse(EARLIEST if start is None else start))
        return self._changed(reference, "reset", restarted, offsets=offsets or {}, snapshot=snapshot)

    def alter(self, reference: str, alteration: Alteration, *, check: bool = True) -> Answer:
        subscription = self._resolved(reference)
        request = checked(alteration.of(subscription), self._settings)
        revision = subscription.revision if alteration.revision is None else alteration.revision
        altered = partial(transitions.altered, sink=request.sink, shape=request.shape, revision=revision)
        altered(subscription)  # raises for what cannot be altered, before anything is reached
        notes = self._require_well(request) if check else []
        return {**self._changed(reference, "alter", altered), "notes": notes}

    def audit(self, reference: str | None, limit: int) -> Sequence[Answer]:
        subject = None if reference is None else self._resolved(reference).reference
        return [{**row, "changed": time_of(row["changed"])} for row in self._subscriptions.audit(subject, limit)]

    def _changed(self, reference: str, operation: str, transition: transitions.Transition, **details: Any) -> Answer:
        identity = self._resolved(reference).id
        changed = self._subscriptions.change(identity, operation, self._user, transition, **details)
        return answer_of(changed, self._kept([identity])[identity])

    def _resolved(self, reference: str) -> Subscription:
        listed = self._subscriptions.all(self._settings.topics.prefix)
        by_reference = {subscription.reference: subscription for subscription in listed}
        return by_reference[resolved(reference, by_reference)]


def _sentence(check: Check) -> str:
    return f"{check.name}: {check.detail}" + (f"; {check.advice}" if check.advice else "")


def resolved(reference: str, references: Mapping[str, object]) -> str:
    """The full reference of one that may be a name alone. Raises UnknownSubscriptionError."""
    fitting = [full for full in references if reference in (full, full.partition("/")[2])]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UnknownSubscriptionError(f"{reference}: there are several: {', '.join(fitting)}; name one of these")
    existing = ", ".join(list(references)[:10]) or "none"
    raise UnknownSubscriptionError(f"{reference}: there is no such subscription; there: {existing}")


def _with(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**values, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _differences(existing: Subscription, request: Request) -> list[str]:
    """A line for each setting that changes. The start is no part of it: it has counted once."""
    old, new = existing.shape, request.shape
    return [
        *_changes("", {"target": existing.sink.target}, {"target": request.sink.target}),
        *_changes("options.", existing.sink.options, request.sink.options),
        *_changes("", {"where": old.where}, {"where": new.where}),
        *_changes("columns.", old.columns, new.columns),
        *_changes("stream.", old.stream, new.stream),
    ]


def _changes(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield f"{prefix}{name}: {_word(old.get(name))} -> {_word(new.get(name))}"


def _word(value: object) -> str:
    return "unset" if value is None else str(value)
