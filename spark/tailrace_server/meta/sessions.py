"""Who has signed in on the page: browsers keep a secret, the meta database its digest. So every server knows them."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

import sqlalchemy as sa

from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.keys import digest_of
from tailrace_server.meta.tables import session

SECONDS: Final = 12 * 3600
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{32}")


@dataclass(frozen=True, slots=True)
class Subject:
    """Somebody who signed in by an issuer: the name for the audit, the role of then, and what issuer and client."""

    name: str
    role: str
    by: str


@dataclass(frozen=True, slots=True)
class Session:
    """A browser's. `digest` is that of the API key that signed in, `subject` who did by an issuer; else nobody has."""

    secret: str
    digest: str | None = None
    subject: Subject | None = None

    @property
    def token(self) -> str:
        """What each form of its pages repeats."""
        return digest_of(f"form {self.secret}")


class Sessions:
    """Those of a meta database. Nothing is kept of browsers before anybody has signed in."""

    def __init__(self, database: MetaDatabase, clock: Callable[[], float]) -> None:
        """`clock` is wall time, in seconds."""
        self._database = database
        self._clock = clock

    def begin(self, digest: str | None = None, subject: Subject | None = None, seconds: int = SECONDS) -> Session:
        """A new one of somebody who has signed in, for so long."""
        new, now = Session(_new(), digest, subject), int(self._clock())
        holder = {"digest": digest, "subject": None if subject is None else asdict(subject)}
        row = {"digest": digest_of(new.secret), "until": now + seconds, "holder": json.dumps(holder)}
        with self._database.transaction() as connection:
            connection.execute(sa.delete(session).where(session.c.until < now))
            connection.execute(sa.insert(session).values(row))
        return new

    def read(self, cookie: str | None) -> tuple[Session, bool]:
        """The session of a cookie, and whether the cookie is one; else a new session, of nobody."""
        if cookie is None or not _SECRET.fullmatch(cookie):
            return Session(_new()), False
        lasting = session.c.digest == digest_of(cookie), session.c.until >= int(self._clock())
        with self._database.transaction() as connection:
            holder = connection.scalar(sa.select(session.c.holder).where(*lasting))
        if holder is None:
            return Session(cookie), True
        values = json.loads(holder)
        return Session(cookie, values["digest"], values["subject"] and Subject(**values["subject"])), True

    def end(self, ended: Session) -> None:
        """Whoever has copied its cookie is nobody from now on."""
        with self._database.transaction() as connection:
            connection.execute(sa.delete(session).where(session.c.digest == digest_of(ended.secret)))


def _new() -> str:
    return secrets.token_urlsafe(24)
