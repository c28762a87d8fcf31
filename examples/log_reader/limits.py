"""How far a reader may read: up to where the log is complete, or, where nobody says so, some time behind now."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.query import SimpleStatement

Limit = Callable[[], int]
"""A write time in microseconds: everything that was written before can be read."""

NOTHING = -(2**63)
"""The limit of a log of which nothing is known to be complete."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def watermark(session: Session, keyspace: str, table: str, consistency: int = ConsistencyLevel.LOCAL_QUORUM) -> Limit:
    """What `tailrace_log_watermarks` says of a log table, asked again at each call.

    `tailrace stream` writes it behind the rows that it covers, so it stands still while the stream does. `consistency`
    must be one that sees every write of the stream; the log has to be read by the same.
    """
    statement = SimpleStatement(
        f"SELECT complete_until FROM {keyspace}.tailrace_log_watermarks WHERE table_name = %s",
        consistency_level=consistency,
    )

    def limit() -> int:
        row = session.execute(statement, (table,)).one()
        if row is None or row[0] is None:
            return NOTHING
        complete_until: datetime = row[0]  # the driver's times are UTC without saying so
        return (complete_until.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)

    return limit


def behind_now(seconds: float, now: Callable[[], float] = time.time) -> Limit:
    """For logs without a watermark, such as ScyllaDB's own: what comes later than after so many seconds is missed."""
    return lambda: round((now() - seconds) * 1_000_000)
