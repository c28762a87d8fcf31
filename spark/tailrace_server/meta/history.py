"""How subscriptions came on in the last hour: their totals twice a minute, for the charts of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tailrace_server.meta.database import MetaDatabase, now
from tailrace_server.meta.tables import progress, progress_history

STEP_MS: Final = 30_000
"""Milliseconds between two samples, by the database's clock, however many servers take them."""
KEPT_MS: Final = 3_600_000
"""How long a sample is kept, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A subscription's totals over its Kafka partitions at a time, in milliseconds since 1970.

    `reached` is the sum of offsets that are read next; `behind` counts records that are not in the sink, None where
    nobody has looked.
    """

    taken: int
    reached: int
    behind: int | None
    partitions: int


class History:
    """The samples of a meta database. Each takes a row for each subscription, and the oldest go."""

    def __init__(self, database: MetaDatabase, *, step: int = STEP_MS, keep: int = KEPT_MS) -> None:
        """`step` and `keep` are in milliseconds."""
        self._database = database
        self._step = step
        self._keep = keep

    def take(self) -> bool:
        """Take a sample if the last one is old enough; whether this call took it. Raises ServiceError."""
        try:
            with self._database.transaction() as connection:
                latest = connection.scalar(sa.select(sa.func.max(progress_history.c.taken)))
                step = int(connection.scalar(sa.select(now())) or 0) // self._step * self._step
                if latest is not None and latest >= step:
                    return False
                connection.execute(sa.delete(progress_history).where(progress_history.c.taken < step - self._keep))
                self._insert(connection, step)
        except _TakenError:
            return False
        return True

    def _insert(self, connection: sa.Connection, sampled: int) -> None:
        names = ["subscription", "taken", "reached", "behind", "partitions"]
        statement = sa.insert(progress_history).from_select(names, _totals(sampled))
        try:
            connection.execute(statement)
        except IntegrityError:  # another server was quicker
            raise _TakenError from None

    def of(self, identities: Sequence[int]) -> dict[int, list[Sample]]:
        """The samples of these subscriptions, the oldest first. Raises ServiceError."""
        collected: dict[int, list[Sample]] = {identity: [] for identity in identities}
        statement = sa.select(progress_history).where(progress_history.c.subscription.in_(identities))
        with self._database.transaction() as connection:
            rows = connection.execute(statement.order_by(progress_history.c.taken)).mappings().all()
        for row in rows:
            sample = Sample(
                taken=row["taken"], reached=row["reached"], behind=row["behind"], partitions=row["partitions"]
            )
            collected[row["subscription"]].append(sample)
        return collected


class _TakenError(Exception):
    """Another server has taken this sample."""


def _totals(sampled: int) -> sa.Select[Any]:
    """A row for each subscription that has progress."""
    end, offset = progress.c.end_offset, progress.c.next_offset
    missing = sa.func.sum(sa.case((end > offset, end - offset), else_=0))
    return sa.select(
        progress.c.subscription,
        sa.literal(sampled, sa.BigInteger),
        sa.func.sum(offset),
        sa.case((sa.func.count(end) > 0, missing)),
        sa.func.count(),
    ).group_by(progress.c.subscription)
