"""Waiting until a database has somebody wait for a lock."""

from __future__ import annotations

import time

from tests.unit.spark.sinks.contract import Database

WAITING = {
    "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}
SECONDS = 60


def until(database: Database, query: str) -> None:
    """Wait until a query counts something."""
    ends = time.monotonic() + SECONDS
    while not database.select(query)[0][0]:
        assert time.monotonic() < ends, query
        time.sleep(0.2)  # InnoDB shows the same to whoever asks more often than each 0.1 s
