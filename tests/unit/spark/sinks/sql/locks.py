"""Waiting until a database has somebody wait for a lock."""

from __future__ import annotations

from tests.support.waiting import until
from tests.unit.spark.sinks.contract import Database

WAITING = {
    "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
    "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}
SECONDS = 60


def until_counted(database: Database, query: str) -> None:
    """Wait until a query counts something."""
    every = 0.2  # InnoDB shows the same to whoever asks more often than each 0.1 s
    until(lambda: database.select(query)[0][0], query, SECONDS, every=every)
