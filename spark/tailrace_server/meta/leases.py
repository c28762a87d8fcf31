"""Who runs a subscription: claims by lease, by the database's clock, fenced by a token that every write carries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.meta.database import MetaDatabase, first, now, put
from tailrace_server.meta.subscriptions import as_json, readable, subscription_of, topics_json
from tailrace_server.meta.tables import delivery, progress, snapshot_progress, subscribe, worker
from tailrace_server.model.delivery import News, PartitionProgress, fair_portion
from tailrace_server.model.subscription import RUNNABLE, LostLeaseError, State, Subscription, Topics

log = logging.getLogger("tailrace_server")
_RUNNABLE: Final = [str(state) for state in RUNNABLE]

Shuffle = Callable[[Sequence[int]], Sequence[int]]
"""The ids in another order, so that workers that look at the same moment do not ask for the same ones."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A subscription that this worker runs; every write of it carries the token."""

    subscription: Subscription
    token: int


class Leases:
    """The claims of one worker, `owner`. A lease lasts for `seconds` from its last renewal."""

    def __init__(self, database: MetaDatabase, cluster: str, owner: str, seconds: float) -> None:
        self._database = database
        self._cluster = cluster
        self.owner = owner
        self._lease = round(seconds * 1000)

    def renew(self, running: int, room: int = 0) -> dict[int, Subscription]:
        """Renew all leases that have not lapsed, and the worker's sign of life; what is this worker's, by id.

        `room` is how many more it may run.
        """
        with self._database.transaction() as connection:
            self._announce(connection, {"running": running, "room": room, "seen_until": now() + self._lease})
            self._renew(connection)
            rows = connection.execute(sa.select(subscribe).where(*self._owned())).mappings().all()
        return {subscription.id: subscription for subscription in readable(rows)}

    def keep(self) -> None:
        """Renew all leases that have not lapsed, of a worker that has left and finishes its last batches."""
        with self._database.transaction() as connection:
            self._renew(connection)

    def _renew(self, connection: sa.Connection) -> None:
        renewed = sa.update(subscribe).where(*self._owned())
        connection.execute(renewed.values(lease_until=now() + self._lease))

    def _owned(self) -> tuple[sa.ColumnElement[bool], ...]:
        return subscribe.c.owner == self.owner, subscribe.c.lease_until >= now()

    def _announce(self, connection: sa.Connection, values: Mapping[str, Any]) -> None:
        put(connection, worker, {"owner": self.owner}, values, cluster=self._cluster, started=now())
        # A worker that was killed leaves its row. MySQL would wait for the rows of all others to look at them.
        killed = sa.select(worker.c.owner).where(worker.c.seen_until < now() - 100 * self._lease)
        for owner in connection.scalars(killed).all():
            connection.execute(sa.delete(worker).where(worker.c.owner == owner))

    def portion(self, limit: int) -> int:
        """The most that this worker should run, of what there is to run and the slots of workers that live."""
        runnable = sa.select(sa.func.count()).select_from(subscribe).where(*self._runnable())
        slots = sa.select(worker.c.running + worker.c.room).where(worker.c.owner != self.owner)
        slots = slots.where(worker.c.cluster == self._cluster, worker.c.seen_until >= now())
        with self._database.transaction() as connection:
            limits = [limit, *connection.scalars(slots)]
            return min(limit, fair_portion(int(connection.scalar(runnable) or 0), limits))

    def claim(self, room: int, shuffle: Shuffle = list) -> list[Claim]:
        """Claim up to so many that nobody has, or whose lease has lapsed."""
        claims: list[Claim] = []
        for identity in shuffle(self.free()) if room > 0 else ():
            if len(claims) == room:
                break
            # One that a later version has altered meanwhile is left to it, as it was.
            with suppress(SettingsError), self._database.transaction() as connection:
                if (claimed := self._claim(connection, identity)) is not None:
                    claims.append(claimed)
        return claims

    def free(self) -> Sequence[int]:
        """The ids of those that may be claimed now."""
        with self._database.transaction() as connection:
            rows = connection.execute(sa.select(subscribe).where(*self._runnable(), self._free())).mappings()
            return [subscription.id for subscription in readable(rows)]

    def _claim(self, connection: sa.Connection, identity: int) -> Claim | None:
        values = {"owner": self.owner, "token": subscribe.c.token + 1, "lease_until": now() + self._lease}
        free = subscribe.c.id == identity, *self._runnable(), self._free()
        if not connection.execute(sa.update(subscribe).where(*free).values(values)).rowcount:
            return None
        subscription = subscription_of(first(connection, sa.select(subscribe).where(subscribe.c.id == identity)))
        return Claim(subscription, subscription.token)

    def _runnable(self) -> tuple[sa.ColumnElement[bool], ...]:
        return subscribe.c.cluster == self._cluster, subscribe.c.ended == 0, subscribe.c.state.in_(_RUNNABLE)

    def _free(self) -> sa.ColumnElement[bool]:
        unowned = sa.or_(subscribe.c.owner.is_(None), subscribe.c.lease_until < now())
        return sa.and_(unowned, sa.func.coalesce(subscribe.c.retry_at, 0) <= now())

    def release(self, claim: Claim, pause: float = 0.0) -> None:
        """Let any worker have it, at once or after so many seconds, which are of the revision that was claimed.

        What is not this worker's any more stays as it is.
        """
        with self._database.transaction() as connection:
            statement = sa.update(subscribe).where(*self._same(claim))
            is_as_claimed = subscribe.c.revision == claim.subscription.revision
            retry_at = sa.case((is_as_claimed, now() + round(1000 * pause)))
            connection.execute(statement.values(owner=None, lease_until=now(), retry_at=retry_at))

    def leave(self) -> None:
        """Take the sign of life away: others share what there is among themselves."""
        with self._database.transaction() as connection:
            connection.execute(sa.delete(worker).where(worker.c.owner == self.owner))

    def positions(self, claim: Claim) -> dict[KafkaPartition, int]:
        """The offsets that are read next. Raises LostLeaseError."""
        with self._database.transaction() as connection:
            self._require(connection, claim)
            statement = sa.select(progress).where(progress.c.subscription == claim.subscription.id)
            rows = connection.execute(statement).mappings().all()
        return {(row["topic"], row["kafka_partition"]): row["next_offset"] for row in rows}

    def save(
        self,
        claim: Claim,
        positions: Mapping[KafkaPartition, PartitionProgress],
        news: News | None = None,
        topics: Topics | None = None,
    ) -> None:
        """Keep how far a subscription is in its sink, and of which topics. Of partitions that are read no more the end
        is forgotten: they may be gone.

        Raises LostLeaseError where this worker may not say so.
        """
        identity = claim.subscription.id
        with self._database.transaction() as connection:
            self._require(connection, claim)
            has_end = progress.c.subscription == identity, progress.c.end_offset.is_not(None)
            rows = connection.execute(sa.select(progress).where(*has_end)).mappings()
            unread = {(row["topic"], row["kafka_partition"]): PartitionProgress(row["next_offset"]) for row in rows}
            for (topic, partition), position in {**unread, **positions}.items():
                key = {"subscription": identity, "topic": topic, "kafka_partition": partition}
                values = {"next_offset": position.next, "end_offset": position.end, "changed": now()}
                put(connection, progress, key, values)
            if news is not None:
                _keep_news(connection, identity, news)
            if topics is not None:
                update = sa.update(subscribe).where(subscribe.c.id == identity)
                connection.execute(update.values(topics=topics_json(topics)))

    def snapshots(self, claim: Claim) -> str | None:
        """How far the snapshots are, as `save_snapshots` was given it; None before the first. Raises LostLeaseError."""
        column = snapshot_progress.c.ranges
        statement = sa.select(column).where(snapshot_progress.c.subscription == claim.subscription.id)
        with self._database.transaction() as connection:
            self._require(connection, claim)
            return connection.scalar(statement)

    def save_snapshots(self, claim: Claim, ranges: str) -> None:
        """Keep how far the snapshots are. Raises LostLeaseError where this worker may not say so."""
        key, values = {"subscription": claim.subscription.id}, {"ranges": ranges, "changed": now()}
        with self._database.transaction() as connection:
            self._require(connection, claim)
            put(connection, snapshot_progress, key, values)

    def leave_out(self, claim: Claim, reasons: Mapping[str, str]) -> None:
        """Say which tables a subscription goes without, and why. Raises LostLeaseError."""
        text = as_json(dict(reasons)) if reasons else None
        with self._database.transaction() as connection:
            self._require(connection, claim)
            statement = sa.update(subscribe).where(subscribe.c.id == claim.subscription.id)
            connection.execute(statement.values(left_out=text))

    def report(self, claim: Claim, changed: Callable[[Subscription], Subscription]) -> Subscription:
        """Keep the state of what runs, unless an operator has set another or altered it. Raises LostLeaseError."""
        with self._database.transaction() as connection:
            self._require(connection, claim)
            statement = sa.select(subscribe).where(subscribe.c.id == claim.subscription.id)
            row = first(connection, statement)
            if row["state"] not in _RUNNABLE or row["revision"] != claim.subscription.revision:
                return claim.subscription  # a later version may have altered it to what this one cannot read
            reported = changed(subscription_of(row))
            values: dict[str, Any] = {
                "state": str(State(reported.state)),
                "reason": _storable(reported.reason),
                "action": _storable(reported.action),
                "attempts": reported.attempts,
            }
            connection.execute(sa.update(subscribe).where(*self._same(claim)).values(values))
            return reported

    def _require(self, connection: sa.Connection, claim: Claim) -> None:
        """Hold the row for this transaction, as its owner with a lease. Raises LostLeaseError."""
        owned = *self._same(claim), subscribe.c.lease_until >= now()
        if not connection.execute(sa.update(subscribe).where(*owned).values(written=now())).rowcount:
            raise LostLeaseError(
                f"{claim.subscription.reference}: this worker's lease has ended (token {claim.token}); another worker "
                "may run it, and this one writes nothing more"
            )

    def _same(self, claim: Claim) -> tuple[sa.ColumnElement[bool], ...]:
        return (
            subscribe.c.id == claim.subscription.id,
            subscribe.c.owner == self.owner,
            subscribe.c.token == claim.token,
        )


def _storable(text: str) -> str:
    """With `?` for halves of characters, which a service may have said and no database takes, and for NUL."""
    return text.replace("\0", "?").encode(errors="replace").decode()


def _keep_news(connection: sa.Connection, identity: int, news: News) -> None:
    values: dict[str, Any] = {"letters": delivery.c.letters + news.letters}
    if news.wrote:
        values["written"] = now()
    if news.complete_seconds is not None:
        values["complete_to"] = now() - round(1000 * news.complete_seconds)
    if news.letters:
        values["letters_since"] = sa.func.coalesce(delivery.c.letters_since, now())
    first_letter = {"letters": news.letters, "letters_since": now() if news.letters else None}
    put(connection, delivery, {"subscription": identity}, values, **first_letter)
