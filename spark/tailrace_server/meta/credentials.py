"""API keys, what each may do, and sessions of the page: of either a digest, from which nobody has the secret again."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tailrace_server.meta.database import MetaDatabase, first, now
from tailrace_server.meta.tables import api_key, session
from tailrace_server.model.subscription import ConflictError, UnknownSubscriptionError

_PREFIX: Final = "tailrace_"
SECONDS: Final = 12 * 3600
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{32}")


class Role(StrEnum):
    """What a key may do: read, change subscriptions too, or read the audit too."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        """Whether this role has the rights of another one."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the name of a key, and its role."""

    name: str
    role: Role


class ApiKeys:
    """The keys of a meta database."""

    def __init__(self, database: MetaDatabase) -> None:
        self._database = database

    def add(self, name: str, role: Role) -> str:
        """A new key, which is shown this once. Raises ConflictError where the name is taken."""
        key = _PREFIX + secrets.token_urlsafe(32)
        with self._database.transaction() as connection:
            if first(connection, sa.select(api_key.c.id).where(api_key.c.name == name)) is not None:
                raise ConflictError(f"there is an API key {name}: revoke it first, or choose another name")
            values = {"name": name, "role": str(role), "digest": digest_of(key), "created": now()}
            try:
                connection.execute(sa.insert(api_key).values(values))
            except IntegrityError:
                raise ConflictError(f"there is an API key {name}, made at this moment") from None
        return key

    def caller(self, key: str) -> Caller | None:
        """Whose key this is; None where it is nobody's."""
        return self.holder(digest_of(key))

    def holder(self, digest: str) -> Caller | None:
        """Whose key has this digest; None where no key has, or not any more."""
        statement = sa.select(api_key).where(api_key.c.digest == digest)
        with self._database.transaction() as connection:
            row = first(connection, statement)
        return None if row is None else Caller(row["name"], Role(row["role"]))

    def revoke(self, name: str) -> None:
        """Whoever has the key is refused from now on. Raises UnknownSubscriptionError without such a key."""
        with self._database.transaction() as connection:
            if not connection.execute(sa.delete(api_key).where(api_key.c.name == name)).rowcount:
                raise UnknownSubscriptionError(f"there is no API key {name}; `tailrace api-keys list` has them")

    def all(self) -> list[dict[str, Any]]:
        """Names, roles and times (milliseconds since 1970), by name."""
        columns = api_key.c.name, api_key.c.role, api_key.c.created
        with self._database.transaction() as connection:
            rows = connection.execute(sa.select(*columns).order_by(api_key.c.name)).mappings().all()
        return [dict(row) for row in rows]


def is_api_key(text: str) -> bool:
    """Whether a text looks like one; a token of an issuer never does."""
    return text.startswith(_PREFIX)


def digest_of(key: str) -> str:
    """What is kept of a key. It has 32 random bytes, so that no salt is needed."""
    return hashlib.sha256(key.encode()).hexdigest()


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
