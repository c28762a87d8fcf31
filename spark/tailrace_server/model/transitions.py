"""What operations make of a subscription: a new value, or a ConflictError that says why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tailrace_server.model.subscription import (
    ALL,
    INITIAL,
    NEVER,
    SNAPSHOT,
    ConflictError,
    Shape,
    Sink,
    Start,
    State,
    Subscription,
    Topics,
)

Transition = Callable[[Subscription], Subscription]


def paused(subscription: Subscription) -> Subscription:
    """Not run until it is resumed; its progress stays."""
    _require_live(subscription, "pause")
    _require_unfinished(subscription, "pause")
    return replace(subscription, state=State.PAUSED, reason="", action="", attempts=0)


def resumed(subscription: Subscription) -> Subscription:
    """Run again from where it was. A failing one is tried at once, and a paused one says again what it waits for.

    An active one stays as it is: its worker has said once what it waits for.
    """
    _require_live(subscription, "resume")
    _require_unfinished(subscription, "resume")
    if subscription.state is State.ACTIVE:
        return subscription
    revision = subscription.revision + 1
    return replace(subscription, state=State.ACTIVE, reason="", action="", attempts=0, revision=revision)


def altered(subscription: Subscription, sink: Sink, shape: Shape, revision: int) -> Subscription:
    """With other settings, from where it was. Its worker finishes a batch first.

    They were made from those of a revision: what somebody else has changed since stays.
    """
    _require_live(subscription, "alter")
    if subscription.revision != revision:
        raise ConflictError(f"{subscription.reference} was changed meanwhile: look at what it is now, and alter that")
    if sink.type != subscription.sink.type:
        raise ConflictError(
            f"{subscription.reference} writes into a sink of type {subscription.sink.type}, and {sink.target} is of "
            f"type {sink.type}: cancel it, or subscribe under another name"
        )
    state = State.PAUSED if subscription.state is State.PAUSED else State.ACTIVE
    new = replace(subscription, sink=sink, shape=shape, state=state, reason="", action="", attempts=0)
    return replace(new, revision=subscription.revision + 1)


def restarted(subscription: Subscription, start: Start | None, reading: str, *, snapshot: bool = False) -> Subscription:
    """Read from another place, and the tables once more. Whoever runs it is fenced: its progress is no longer true.

    `reading` is a name that no reading of it had. Without `start` the log goes on where it is, in the reading that it
    has. One that took no snapshots takes one from now on.
    """
    _require_live(subscription, "reset")
    state = State.PAUSED if subscription.state is State.PAUSED else State.ACTIVE
    shape = subscription.shape
    if snapshot and subscription.snapshot == NEVER:
        shape = replace(shape, stream={**shape.stream, SNAPSHOT: INITIAL})
    new = replace(subscription, shape=shape, state=state, reason="", action="", attempts=0)
    new = new if start is None else replace(new, start=start, topics=Topics(readings={ALL: reading}))
    return replace(new, revision=subscription.revision + 1, token=subscription.token + 1, owner=None)


def cancelled(subscription: Subscription) -> Subscription:
    """Never run again. Its name is free for another one, and its target stays."""
    _require_live(subscription, "cancel")
    return replace(subscription, state=State.CANCELLED, reason="", action="", attempts=0)


def failed(subscription: Subscription, reason: str, action: str) -> Subscription:
    """Failing, for a reason; its worker goes on trying."""
    return replace(subscription, state=State.FAILING, reason=reason, action=action, attempts=subscription.attempts + 1)


def recovered(subscription: Subscription) -> Subscription:
    """Active again."""
    return replace(subscription, state=State.ACTIVE, reason="", action="", attempts=0)


def noted(subscription: Subscription, reason: str, action: str) -> Subscription:
    """Active, and waiting for what the reason says; both are empty where it waits for nothing."""
    return replace(subscription, reason=reason, action=action)


def finished(subscription: Subscription, reason: str) -> Subscription:
    """Its snapshot has ended, and it asked for nothing else. `reason` is for tables that could not be read."""
    return replace(subscription, state=State.DONE, reason=reason, action="", attempts=0)


def _require_unfinished(subscription: Subscription, operation: str) -> None:
    if subscription.state is State.DONE:
        raise ConflictError(
            f"{subscription.reference} is done with its snapshot, and nothing can {operation} it. `tailrace reset "
            f"{subscription.reference} --snapshot` reads the tables again; `tailrace alter {subscription.reference} "
            "--snapshot initial` follows their log"
        )


def _require_live(subscription: Subscription, operation: str) -> None:
    if subscription.state is State.CANCELLED:
        raise ConflictError(
            f"{subscription.reference} is cancelled, and nothing can {operation} it: subscribe again, under any name"
        )
