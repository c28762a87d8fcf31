"""What the mirror has not published yet, and which server publishes it: by lease, by the database's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tailrace_server.meta.backup import subscription_rows
from tailrace_server.meta.clock import now
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.tables import mirror, progress, subscribe

Rows = Sequence[tuple[str, dict[str, Any]]]
"""Rows of one subscription as JSON, each with its table's name."""


@dataclass(frozen=True, slots=True)
class Unmirrored:
    """A subscription that changed. `changes` is the count that its rows show; they are empty for a cancelled one."""

    identity: int
    changes: int
    rows: Rows = field(repr=False)


class Outbox:
    """The outbox of a cluster. A change stands in it from the transaction that makes it until `confirm`."""

    def __init__(self, database: MetaDatabase, cluster: str) -> None:
        self._database = database
        self._cluster = cluster

    def claim(self, owner: str, seconds: float) -> bool:
        """Whether this server publishes, for so many seconds from now on."""
        values = {"owner": owner, "lease_until": now() + round(seconds * 1000)}
        mine = mirror.c.cluster == self._cluster, sa.or_(mirror.c.owner == owner, mirror.c.lease_until < now())
        exists = sa.select(mirror.c.owner).where(mirror.c.cluster == self._cluster)
        with self._database.transaction() as connection:
            if connection.execute(sa.update(mirror).where(*mine).values(values)).rowcount:
                return True
            if connection.execute(exists).first() is not None:
                return False
            try:
                connection.execute(sa.insert(mirror).values({"cluster": self._cluster, **values}))
            except IntegrityError:
                return False
            return True

    def release(self, owner: str) -> None:
        """Let another server publish at once."""
        with self._database.transaction() as connection:
            connection.execute(sa.update(mirror).where(mirror.c.owner == owner).values(lease_until=0))

    def pending(self, limit: int) -> list[Unmirrored]:
        """Subscriptions that changed since they were published, the oldest ids first."""
        columns = subscribe.c.id, subscribe.c.changes, subscribe.c.ended
        changed = subscribe.c.cluster == self._cluster, subscribe.c.changes > subscribe.c.mirrored
        statement = sa.select(*columns).where(*changed).order_by(subscribe.c.id).limit(limit)
        with self._database.transaction() as connection:
            return [
                # The count is read before the rows: what changes between the two is published again.
                Unmirrored(identity, changes, [] if ended else subscription_rows(connection, identity))
                for identity, changes, ended in connection.execute(statement).all()
            ]

    def last_id(self) -> int:
        """The largest id that a subscription ever had."""
        with self._database.transaction() as connection:
            return int(connection.scalar(sa.select(sa.func.max(subscribe.c.id))) or 0)

    def confirm(self, published: Sequence[Unmirrored]) -> None:
        """These are in Kafka. What has changed again since then stays."""
        with self._database.transaction() as connection:
            for item in published:
                older = subscribe.c.id == item.identity, subscribe.c.mirrored < item.changes
                connection.execute(sa.update(subscribe).where(*older).values(mirrored=item.changes))

    def renew(self, *, all_: bool = False) -> None:
        """Publish again: all, or those that run and got further, so that a rebuild has less to read again."""
        live = subscribe.c.cluster == self._cluster, subscribe.c.ended == 0
        moved = sa.select(progress.c.subscription).where(progress.c.subscription == subscribe.c.id).exists()
        conditions = live if all_ else (*live, moved)
        with self._database.transaction() as connection:
            connection.execute(sa.update(subscribe).where(*conditions).values(changes=subscribe.c.changes + 1))
