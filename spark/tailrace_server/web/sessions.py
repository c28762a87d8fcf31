"""Who has signed in: a cookie that only servers of this meta database can read, and that has no API key in it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tailrace_schemas.errors import SettingsError
from tailrace_server.sealing import Sealer

COOKIE: Final = "tailrace_session"
SECONDS: Final = 12 * 3600
_PURPOSE: Final = "session"
_LONGEST: Final = 4096


@dataclass(frozen=True, slots=True)
class Session:
    """A browser's. `digest` is that of its API key, None before it has signed in; each form repeats `token`."""

    token: str
    until: int
    digest: str | None = None


class Sessions:
    """Makes and reads cookies, sealed with the key of the servers. A revoked API key ends its sessions at once."""

    def __init__(self, sealer: Sealer, clock: Callable[[], float]) -> None:
        """`clock` is wall time, in seconds."""
        self._sealer = sealer
        self._clock = clock

    def new(self, digest: str | None = None) -> Session:
        """One that begins now."""
        return Session(secrets.token_urlsafe(24), int(self._clock()) + SECONDS, digest)

    def cookie(self, session: Session) -> str:
        """The value of its cookie. Raises SettingsError where the servers' key cannot be read."""
        values = {"for": _PURPOSE, "token": session.token, "until": session.until, "digest": session.digest}
        return self._sealer.seal(json.dumps(values))

    def seal(self, session: Session, text: str) -> str:
        """A text that comes back from a page of this session: nobody can read it there."""
        return self._sealer.seal(json.dumps({"for": session.token, "text": text}))

    def open(self, session: Session, sealed: str) -> str | None:
        """What `seal` was given; None for what is none, or of another session."""
        try:
            values = json.loads(self._sealer.open(sealed)) if sealed else {}
        except (SettingsError, ValueError):
            return None
        return str(values["text"]) if values.get("for") == session.token else None

    def read(self, cookie: str | None) -> Session | None:
        """The session of a cookie; None for what is none, or has ended."""
        if not cookie or len(cookie) > _LONGEST:
            return None
        try:
            values = json.loads(self._sealer.open(cookie))
        except (SettingsError, ValueError):
            return None
        if values.get("for") != _PURPOSE or values["until"] < self._clock():
            return None
        return Session(values["token"], values["until"], values["digest"])


def same_token(session: Session, token: str) -> bool:
    """Whether a form repeats the session's token."""
    return secrets.compare_digest(session.token.encode(), token.encode())
