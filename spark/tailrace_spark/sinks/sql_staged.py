"""The fast path: rows that the database takes in by itself where nothing else is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import sqlalchemy as sa

from tailrace_spark.rowstate.plain import plain_state
from tailrace_spark.sinks.sql_bulk import TEMPORARY, insert_missing, stage
from tailrace_spark.sinks.sql_gathered import RowKey, Said
from tailrace_spark.sinks.sql_shown import ShownTable
from tailrace_spark.sinks.sql_state import StateTable, Stored, state_row, stored_as


class StagedRows:
    """Stages rows as their changes alone make them, state and values together, and takes them from there."""

    def __init__(self, state: StateTable, shown: ShownTable) -> None:
        self._state = state
        self._shown = shown
        columns = [*state.table.columns, *[shown.table.c[name] for name in shown.names[2:]]]
        shape = blake2b(repr([(column.name, str(column.type)) for column in columns]).encode(), digest_size=8)
        self._staged = sa.Table(
            f"tailrace_rows_{shape.hexdigest()}",
            sa.MetaData(),
            *[sa.Column(f"c{at}", column.type) for at, column in enumerate(columns)],
            sa.Column("there", sa.Boolean, nullable=False),
            **TEMPORARY,
        )
        self._nothing = [None] * len(shown.columns)
        names = [column.name for column in state.table.columns]
        staged = list(self._staged.columns)
        self._names = names
        self._states = staged[: len(names)]
        self._values = [*staged[:2], *staged[len(names) : -1]]
        c, w = state.table.c, dict(zip(names, staged, strict=False))
        self._same = sa.and_(c.key == w["key"], c.clustering == w["clustering"])
        assigned = [c[name].is_distinct_from(w[name]) for name in ("generation", "stream_id")]
        self._differs = sa.or_(c.state != w["state"], *assigned)

    def take(
        self, connection: sa.Connection, rows: Mapping[RowKey, Said], at: int | None
    ) -> tuple[int, dict[RowKey, Stored]]:
        """How many rows were new, and the states of those that were not and have to be merged.

        What is there byte for byte as it is said again is neither.
        """
        staged = sorted(self._stage(row_key, said, at) for row_key, said in rows.items())
        if not staged:
            return 0, {}
        stage(connection, self._staged, staged)
        added = insert_missing(connection, self._state.table, self._names, sa.select(*self._states))
        known: dict[RowKey, Stored] = {}
        if added < len(staged):
            known = self._known(connection)
        shown = sa.select(*self._values).where(self._staged.c.there)
        insert_missing(connection, self._shown.table, self._shown.names, shown)
        return added, known

    def _known(self, connection: sa.Connection) -> dict[RowKey, Stored]:
        """The states that differ from the staged ones, which are staged no longer."""
        c = self._state.table.c
        query = sa.select(c.key, c.clustering, c.state, c.generation, c.stream_id)
        query = query.join_from(self._staged, self._state.table, self._same).where(self._differs)
        known = {(key, at): stored_as(*stored) for key, at, *stored in connection.execute(query)}
        if known:
            there = sa.exists().where(self._same, self._differs)
            connection.execute(self._staged.delete().where(there))
        return known

    def _stage(self, row_key: RowKey, said: Said, at: int | None) -> tuple[object, ...]:
        alone = said.alone
        plain = None if alone is None else plain_state(alone.change)
        if alone is None or plain is None:
            state = said.state
            head, values = state_row(row_key, state, at), self._shown.values(state, at)
        else:
            generation, stream_id = alone.assignment or _UNASSIGNED
            head = (*row_key, *plain, generation, stream_id, None)
            values = self._shown.plain_values(alone.change, plain[0])
        keys = self._shown.key_values(row_key[0], said.clustering)
        return (*head, *keys, *(self._nothing if values is None else values), values is not None)


_UNASSIGNED: Final = (None, None)
