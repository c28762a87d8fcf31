"""The errors of subscriptions, each with the status that the HTTP API answers."""

from __future__ import annotations

from tailrace_schemas.errors import FencedError, SettingsError, TailraceError


class RefusedRequestError(SettingsError):
    """A request is wrong in itself: an unknown setting, a name that cannot be. Status 422."""


class UnknownSubscriptionError(TailraceError):
    """There is no such subscription, or the name fits several. Status 404."""


class ConflictError(TailraceError):
    """A request does not fit what exists: a name that is taken, a state that does not allow it. Status 409."""


class LostLeaseError(FencedError):
    """This worker does not own the subscription any more: another one may. It writes nothing of it from now on."""
