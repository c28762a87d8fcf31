"""API keys: what each may do, and a digest of it, from which nobody has the key again."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tailrace_server.meta.database import MetaDatabase, first, now
from tailrace_server.meta.tables import api_key
from tailrace_server.model.subscription import ConflictError, UnknownSubscriptionError

_PREFIX: Final = "tailrace_"


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
