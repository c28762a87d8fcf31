"""Forgets tombstones, up to where they were forgotten, and the changes that come too late because of it."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import sqlalchemy as sa

from tailrace_spark.merge.purge import purge_stored
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.state_store.bulk import overwrite
from tailrace_spark.sinks.state_store.dialects import MYSQL, MYSQL_TABLE
from tailrace_spark.sinks.state_store.state_table import StateTable
from tailrace_spark.sinks.state_store.tables import CATALOG

_MICROS: Final = 1_000_000

PURGES: Final = sa.Table(
    "tailrace_purges",
    CATALOG,
    sa.Column("table_id", sa.Text().with_variant(sa.String(36), MYSQL), primary_key=True),
    sa.Column("purged_to", sa.BigInteger, nullable=False),
    **MYSQL_TABLE,
)


class Purges:
    """The largest write time, in microseconds, of what was purged of each table (docs/contracts.md section 6)."""

    def __init__(self) -> None:
        self._known: dict[UUID, int] | None = None

    def forget(self) -> None:
        """Read it again when it is next needed."""
        self._known = None

    def note(self, connection: sa.Connection, table_id: UUID, written: int) -> None:
        """Something of this write time was purged."""
        purged_to = self._read(connection)
        if written > purged_to.get(table_id, written - 1):
            purged_to[table_id] = written
            overwrite(connection, PURGES, ("table_id", "purged_to"), [(str(table_id), written)])

    def reset(self, connection: sa.Connection, table_id: UUID) -> None:
        """All of the table was truncated: what was purged of it would hold nothing back that comes now."""
        if self._read(connection).pop(table_id, None) is not None:
            connection.execute(PURGES.delete().where(PURGES.c.table_id == str(table_id)))

    def purged_to(self, connection: sa.Connection, table_id: UUID) -> int | None:
        """The largest write time of what was purged of a table; None where nothing was."""
        return self._read(connection).get(table_id)

    def _read(self, connection: sa.Connection) -> dict[UUID, int]:
        if self._known is None:
            rows = connection.execute(sa.select(PURGES.c.table_id, PURGES.c.purged_to))
            self._known = {UUID(table_id): purged_to for table_id, purged_to in rows}
        return self._known


def forget(
    state: StateTable, connection: sa.Connection, until: int, now: int, limit: int
) -> list[tuple[RowKey, int | None]]:
    """Take out of a state what only deletes, or has expired, and was written and came by `until`; of so many rows.

    Both times in seconds. What is shown stays. Gives the row keys, and for each the largest
    write time that went, in microseconds. What is as old must not be merged any more.
    """
    states: dict[RowKey, RowState] = {}
    arrived: dict[RowKey, int] = {}
    purged: list[tuple[RowKey, int | None]] = []
    for row_key, since, stored in state.purgeable(connection, until, limit):
        remaining, written = purge_stored(row_key[1], stored, until * _MICROS)
        states[row_key], arrived[row_key] = remaining, since
        purged.append((row_key, written))
    state.write(connection, states, now, arrived)
    return purged
