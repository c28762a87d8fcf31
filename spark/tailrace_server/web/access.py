"""Who looks at a page: its session, its role, and the form that it sends, with the token of its session."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Annotated, Final
from urllib.parse import parse_qsl

from fastapi import Depends, HTTPException, Request

from tailrace_common.settings import Settings
from tailrace_server.api.access import ANYBODY, Access, OperationsFor, host_of
from tailrace_server.meta.credentials import Caller, Role, Session, Sessions
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.operations.operations import DirectOperations, Examine

COOKIE: Final = "tailrace_session"
TOKEN: Final = "token"  # noqa: S105 - the name of a field
_MOST_FIELDS: Final = 500
_FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Visitor:
    """Whoever looks, None before signing in, with the session; `is_new` where the browser has no cookie of it yet."""

    caller: Caller | None
    session: Session
    is_new: bool

    def may(self, role: Role) -> bool:
        """Whether the page offers what needs this role."""
        return self.caller is not None and self.caller.role.may(role)


class SignInError(Exception):
    """Nobody has signed in, or the session has ended."""


class Doorkeeper:
    """Tells who sends a request. Without `keys` everybody on this machine is an admin."""

    def __init__(self, sessions: Sessions, access: Access) -> None:
        self._sessions = sessions
        self.keys = access.keys
        self.sign_in = None if access.keys is None else access.sign_in
        self._access = access

    def admit_stranger(self, request: Request) -> None:
        """Count a wrong key, or an issuer's answer. Raises HTTPException 429 where that are too many of one address."""
        self._access.admit(f"address {host_of(request)}")

    def visitor(self, request: Request) -> Visitor:
        """Whoever sends it."""
        session, has_cookie = self._sessions.read(request.cookies.get(COOKIE))
        return Visitor(self._caller(request, session), session, not has_cookie)

    def _caller(self, request: Request, session: Session) -> Caller | None:
        if self.keys is None:
            return Caller(f"{ANYBODY}@{host_of(request)}", Role.ADMIN)
        if (subject := session.subject) is not None:
            is_ours = self.sign_in is not None and self.sign_in.by == subject.by
            return Caller(subject.name, Role(subject.role)) if is_ours else None
        holder = None if session.digest is None else self.keys.holder(session.digest)
        return None if holder is None else Caller(f"key {holder.name}", holder.role)

    def admitted(self, request: Request, needed: Role) -> Visitor:
        """The same. Raises SignInError, and HTTPException 403 for a lower role, 429 for too many requests."""
        visitor = self.visitor(request)
        if visitor.caller is None:
            raise SignInError
        self._access.admit(visitor.caller.name)
        if not visitor.caller.role.may(needed):
            words = f"{visitor.caller.name} has the role {visitor.caller.role}, and this needs {needed}"
            raise HTTPException(403, words)
        return visitor


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form, of each name the last. Raises HTTPException for what is none."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != _FORM:
        raise HTTPException(415, f"a form is sent as {_FORM}")
    try:
        text = (await request.body()).decode()
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        raise HTTPException(400, "the form cannot be read") from None


Form = Annotated[dict[str, str], Depends(form_of)]
"""The fields of a form, as a route takes them."""


def require_token(visitor: Visitor, form: Mapping[str, str]) -> None:
    """Raise HTTPException 403 for a form that is not of this session's pages."""
    if not compare_digest(visitor.session.token.encode(), form.get(TOKEN, "").encode()):
        raise HTTPException(403, "the form is of another session, or of one that has ended: load the page again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """All of it. `clock` is wall time, in seconds."""

    settings: Settings
    operations: OperationsFor
    subscriptions: Subscriptions
    doors: Doorkeeper
    sessions: Sessions
    version: str
    clock: Callable[[], float]


def site_of(
    settings: Settings,
    database: MetaDatabase,
    subscriptions: Subscriptions,
    version: str,
    access: Access,
    clock: Callable[[], float] = time.time,
    examine: Examine | None = None,
) -> Site:
    """The site of a server with these settings; requests are looked at by `examine`."""
    sessions = Sessions(database, clock)
    return Site(
        settings=settings,
        operations=lambda name: DirectOperations(subscriptions, settings, name, examine),
        subscriptions=subscriptions,
        doors=Doorkeeper(sessions, access),
        sessions=sessions,
        version=version,
        clock=clock,
    )
