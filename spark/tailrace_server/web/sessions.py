"""Who has signed in: a cookie that only servers of this meta database can read, and that has no API key in it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from tailrace_schemas.errors import SettingsError
from tailrace_server.oidc.sign_in import Flow
from tailrace_server.sealing import Sealer

COOKIE: Final = "tailrace_session"
SECONDS: Final = 12 * 3600
_PURPOSE: Final = "session"
_FLOW: Final = "sign in"
_LONGEST: Final = 4096


@dataclass(frozen=True, slots=True)
class Subject:
    """Somebody who signed in by an issuer: the name for the audit, the role of then, and what issuer and client."""

    name: str
    role: str
    by: str


@dataclass(frozen=True, slots=True)
class Session:
    """A browser's; each form repeats `token`. `digest` is that of its API key, `subject` who signed in by an issuer.

    Both are None before anybody has signed in.
    """

    token: str
    until: int
    digest: str | None = None
    subject: Subject | None = None


class Sessions:
    """Makes and reads cookies, sealed with the key of the servers. A revoked API key ends its sessions at once."""

    def __init__(self, sealer: Sealer, clock: Callable[[], float]) -> None:
        """`clock` is wall time, in seconds."""
        self._sealer = sealer
        self._clock = clock

    def new(self, digest: str | None = None) -> Session:
        """One that begins now."""
        return Session(secrets.token_urlsafe(24), int(self._clock()) + SECONDS, digest)

    def of_subject(self, subject: Subject, seconds: int) -> Session:
        """One of somebody who signed in by an issuer, for so long."""
        return Session(secrets.token_urlsafe(24), int(self._clock()) + seconds, subject=subject)

    def seal_flow(self, flow: Flow) -> str:
        """An attempt to sign in by an issuer, as a cookie."""
        return self._sealed({"for": _FLOW, **asdict(flow)})

    def flow(self, cookie: str | None) -> Flow | None:
        """The attempt of a cookie; None for what is none."""
        values = self._opened(cookie, _FLOW)
        return None if values is None else Flow(**{name: values[name] for name in Flow.__dataclass_fields__})

    def _opened(self, cookie: str | None, purpose: str) -> dict[str, Any] | None:
        if not cookie or len(cookie) > _LONGEST:
            return None
        try:
            values = json.loads(self._sealer.open(cookie))
        except (SettingsError, ValueError):
            return None
        return values if values.get("for") == purpose else None

    def cookie(self, session: Session) -> str:
        """The value of its cookie. Raises SettingsError where the servers' key cannot be read."""
        return self._sealed({"for": _PURPOSE, **asdict(session)})

    def _sealed(self, values: dict[str, Any]) -> str:
        self._sealer.make()
        return self._sealer.seal(json.dumps(values))

    def read(self, cookie: str | None) -> Session | None:
        """The session of a cookie; None for what is none, or has ended."""
        values = self._opened(cookie, _PURPOSE)
        if values is None or values["until"] < self._clock():
            return None
        subject = values.get("subject")  # cookies of earlier versions have none
        holder = None if subject is None else Subject(**subject)
        return Session(values["token"], values["until"], values["digest"], holder)


def same_token(session: Session, token: str) -> bool:
    """Whether a form repeats the session's token."""
    return secrets.compare_digest(session.token.encode(), token.encode())
