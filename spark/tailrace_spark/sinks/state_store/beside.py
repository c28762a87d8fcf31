"""Who writes a source table beside its stream: a replay or a repair has it alone until it commits.

Merging reads rows, and writes them merged. All of it is READ COMMITTED, so of two that read the same row the second
would undo what the first has written. Streams and their tasks share a table: their keys are their own. Who has no name
(`fences`) has other writers' keys too. So it waits until nobody writes the table, and keeps all others waiting.

It also counts up the table's token in `tailrace_fences`, under the table's id. By that the others find that what they
know is old: the table's truncations and purges, and whether any partition has deletions.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import sqlalchemy as sa

from tailrace_spark.sinks.state_store.fences import FENCES, count_up, upsert
from tailrace_spark.sinks.state_store.tables import MYSQL, POSTGRESQL

_SIGN: Final = 1 << 63
_TURNS: Final = FENCES.alias("turns")


class TableTurns:
    """Takes turns at source tables, in the caller's transactions, and knows which token it has last seen of each."""

    def __init__(self) -> None:
        self._tokens: dict[UUID, int] = {}
        self.alone = False
        """Whether this process writes beside others, without a name."""

    def take(self, connection: sa.Connection, table_id: UUID) -> bool:
        """Wait for the table, until the transaction ends; whether somebody else has had it alone since the last time.

        Call it before anything is read of the table, and again behind DDL, around which MySQL commits.
        """
        # PostgreSQL's own locks keep their order: who shares a row's lock passes whoever waits for it alone.
        if connection.dialect.name == POSTGRESQL:
            lock = sa.func.pg_advisory_xact_lock if self.alone else sa.func.pg_advisory_xact_lock_shared
            connection.execute(sa.select(lock(_lock_of(table_id))))
        token = count_up(connection, str(table_id)) if self.alone else _token(connection, table_id)
        expected = self._tokens.get(table_id, 0) + self.alone
        self._tokens[table_id] = token
        return token != expected


def _token(connection: sa.Connection, table_id: UUID) -> int:
    query = sa.select(_TURNS.c.token).where(_TURNS.c.stream == str(table_id))
    if connection.dialect.name != MYSQL:
        return connection.execute(query).scalar_one_or_none() or 0
    shared = query.with_for_update(read=True)
    token: int | None = connection.execute(shared).scalar_one_or_none()
    if token is None:  # no lock holds a row that is absent
        row = {"stream": str(table_id), "token": 0}
        connection.execute(upsert(MYSQL, FENCES, row, {"token": FENCES.c.token}))
        token = connection.execute(shared).scalar_one()
    return token


def _lock_of(table_id: UUID) -> int:
    """A number that PostgreSQL's locks take, signed and of 64 bits."""
    return (table_id.int & 2 * _SIGN - 1) - _SIGN
