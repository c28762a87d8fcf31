"""Writes rows of one table into its state and what is shown of it: new ones, and ones that merging changed."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa

from tailrace_spark.sinks.naming import CLUSTERING, KEY
from tailrace_spark.sinks.sql.row_builder import NewRow, RowUpdate
from tailrace_spark.sinks.sql.rows_table import VisibleTable
from tailrace_spark.sinks.state_store.bulk import TEMPORARY, insert, overwrite, stage
from tailrace_spark.sinks.state_store.dialects import POSTGRESQL
from tailrace_spark.sinks.state_store.state_table import StateTable


class RowWriter:
    """Writes in the caller's transaction.

    PostgreSQL gets changed rows once, in a temporary table with the columns of both, and updates each from there.
    Where a row's page has room, an update leaves the indexes alone.
    """

    def __init__(self, state: StateTable, visible: VisibleTable) -> None:
        self._state = state
        self._shown = visible
        self._state_names = [column.name for column in state.table.columns]
        columns = [*state.table.columns, *[visible.table.c[name] for name in visible.columns]]
        shape = blake2b(repr([(column.name, str(column.type)) for column in columns]).encode(), digest_size=8)
        self._staged = sa.Table(
            f"tailrace_rows_{shape.hexdigest()}",
            sa.MetaData(),
            *[sa.Column(f"c{index}", column.type) for index, column in enumerate(columns)],
            sa.Column("there", sa.Boolean, nullable=False),
            **TEMPORARY,
        )
        self._nothing: list[object] = [None] * len(visible.columns)
        staged, c, rows = list(self._staged.columns), state.table.c, visible.table.c
        value_columns = [name for name in self._state_names if not c[name].primary_key]
        self._update_state = (
            state.table.update()
            .where(c.key == staged[0], c.clustering == staged[1])
            .values(dict(zip(value_columns, staged[2 : len(c)], strict=True)))
        )
        self._same = sa.and_(rows[KEY] == staged[0], rows[CLUSTERING] == staged[1], self._staged.c.there)
        staged_values = dict(zip(visible.columns, staged[len(c) : -1], strict=True))
        self._update_shown = visible.table.update().where(self._same).values(staged_values) if staged_values else None
        missing = ~sa.exists().where(self._same)
        self._missing = sa.select(staged[0], staged[1]).where(self._staged.c.there, missing)

    def insert(self, connection: sa.Connection, rows: Sequence[NewRow]) -> None:
        """Put rows that are not there. Raises DBAPIError where one is: somebody else put it."""
        if rows:
            insert(connection, self._state.table, self._state_names, [row for row, _ in rows])
            visible = [values for _, values in rows if values is not None]
            insert(connection, self._shown.table, self._shown.names, visible)

    def update(self, connection: sa.Connection, rows: Sequence[RowUpdate]) -> None:
        """Put rows in the place of those that are there, and take away what is left of none, or shows no more."""
        stored = [changed for changed in rows if changed.row is not None]
        if stored:
            if connection.dialect.name == POSTGRESQL:
                self._update_staged(connection, stored)
            else:
                overwrite(connection, self._state.table, self._state_names, [update.row or () for update in stored])
                self._put(connection, [changed for changed in stored if changed.values is not None])
        self._state.remove(connection, [changed.row_key for changed in rows if changed.row is None])
        self._shown.remove(connection, [changed.row_key for changed in rows if changed.values is None])

    def _update_staged(self, connection: sa.Connection, updates: Sequence[RowUpdate]) -> None:
        stage(connection, self._staged, [self._stage(changed) for changed in updates])
        connection.execute(self._update_state)
        visible = sum(changed.values is not None for changed in updates)
        if self._update_shown is not None and _count(connection, self._update_shown) == visible:
            return
        missing = {(key, clustering) for key, clustering in connection.execute(self._missing)}
        self._put(connection, [changed for changed in updates if changed.row_key in missing])

    def _stage(self, changed: RowUpdate) -> tuple[object, ...]:
        values = changed.values
        return (*(changed.row or ()), *(self._nothing if values is None else values), values is not None)

    def _put(self, connection: sa.Connection, rows: Sequence[RowUpdate]) -> None:
        visible_rows = [self._shown.row(update.row_key, update.clustering, update.values or ()) for update in rows]
        overwrite(connection, self._shown.table, self._shown.names, visible_rows)


def _count(connection: sa.Connection, update: sa.Update) -> int:
    result: Any = connection.execute(update, execution_options={"preserve_rowcount": True})
    return int(result.rowcount)
