"""What operations make of a subscription: a new value, or a ConflictError that says why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tailrace_server.model.errors import ConflictError
from tailrace_server.model.subscription import Shape, SinkSummary, Start, State, Subscription

Transition = Callable[[Subscription], Subscription]


def paused(subscription: Subscription) -> Subscription:
    """Not run until it is resumed; its progress stays."""
    _require_live(subscription, "pause")
    return replace(subscription, state=State.PAUSED, reason="", action="", attempts=0)


def resumed(subscription: Subscription) -> Subscription:
    """Run again from where it was. A failing one is tried at once."""
    _require_live(subscription, "resume")
    revision = subscription.revision + (subscription.state is State.FAILING)
    return replace(subscription, state=State.ACTIVE, reason="", action="", attempts=0, revision=revision)


def altered(subscription: Subscription, sink: SinkSummary, shape: Shape) -> Subscription:
    """With other settings, from where it was. Its worker finishes a batch first."""
    _require_live(subscription, "alter")
    if sink.type != subscription.sink.type:
        raise ConflictError(
            f"{subscription.reference} writes into a sink of type {subscription.sink.type}, and another type "
            "is another target: cancel it, or subscribe under another name"
        )
    state = State.PAUSED if subscription.state is State.PAUSED else State.ACTIVE
    new = replace(subscription, sink=sink, shape=shape, state=state, reason="", action="", attempts=0)
    return replace(new, revision=subscription.revision + 1)


def restarted(subscription: Subscription, start: Start) -> Subscription:
    """Read from another place. Whoever runs it is fenced at once: its progress is no longer true."""
    _require_live(subscription, "reset")
    state = State.PAUSED if subscription.state is State.PAUSED else State.ACTIVE
    new = replace(subscription, start=start, state=state, reason="", action="", attempts=0)
    return replace(
        new,
        revision=subscription.revision + 1,
        token=subscription.token + 1,
        owner=None,
        lease_until=None,
    )


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


def _require_live(subscription: Subscription, operation: str) -> None:
    if subscription.state is State.CANCELLED:
        raise ConflictError(
            f"{subscription.reference} is cancelled, and nothing can {operation} it: subscribe again, under any name"
        )
