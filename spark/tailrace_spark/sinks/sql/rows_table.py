"""What users see: the rows of NAME__rows or NAME__static, rendered from states, put there and taken away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa

from tailrace_common.sections.template import CLUSTERING, KEY
from tailrace_schemas.table import ColumnKind
from tailrace_spark.merge.batch_changes import Clustering
from tailrace_spark.merge.shown_rows import ShownRows
from tailrace_spark.merge.stored_row import STATIC, RowKey
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.sql.layout import ColumnPlace, LayoutTables
from tailrace_spark.sinks.sql.row_builder import NewRow, Renderer, RowUpdate
from tailrace_spark.sinks.state_store.bulk import TEMPORARY, insert, overwrite, stage
from tailrace_spark.sinks.state_store.state_table import CHUNK, StateTable
from tailrace_spark.sinks.state_store.tables import POSTGRESQL


class VisibleTable:
    """Puts rows of one of both tables, and takes them away."""

    def __init__(
        self, tables: LayoutTables, dialect: str, *, static: bool, shown_rows: ShownRows | None = None
    ) -> None:
        """With `static`, the layout must have a table for static columns. Rows outside `shown_rows` are not in it."""
        sql_table = tables.static if static else tables.rows
        if sql_table is None:
            raise ValueError(f"{tables.layout.name} has no static columns")
        table, layout = tables.layout.definition, tables.layout
        self.table = sql_table
        self._static = static
        self._dialect = dialect
        columns = layout.of_kind(ColumnKind.STATIC if static else ColumnKind.REGULAR)
        names = [value.source for value in columns]
        self.renderer = Renderer(table, names, dialect, static=static, shown_rows=shown_rows)
        clustering = [] if static else layout.of_kind(ColumnKind.CLUSTERING)
        keys = [key.stored for key in (*layout.of_kind(ColumnKind.PARTITION_KEY), *clustering)]
        self._key_columns = [sql_table.c[KEY]] if static else [sql_table.c[KEY], sql_table.c[CLUSTERING]]
        named = sa.and_(*[column == sa.bindparam("b_" + column.name) for column in self._key_columns])
        self._delete = sql_table.delete().where(named)
        stored = [value.stored for value in columns]
        self._update = sql_table.update().where(named).values({name: sa.bindparam(name) for name in stored})
        self.names: tuple[str, ...] = (*[column.name for column in self._key_columns], *keys, *stored)
        """The columns of a whole row, in order."""
        self.columns: tuple[str, ...] = tuple(stored)
        """Those that are no keys."""
        self._state = tables.state

    def row(self, row_key: RowKey, clustering: Clustering, values: Sequence[object]) -> tuple[object, ...]:
        """A whole row, under `names`."""
        head = (row_key[0],) if self._static else row_key
        return (*head, *self.renderer.keys(row_key[0], clustering), *values)

    def put(
        self, connection: sa.Connection, rows: Mapping[RowKey, tuple[RowState, Clustering]], now: int | None
    ) -> None:
        """Show these rows as their states say, whether they were there or not."""
        visible: list[tuple[object, ...]] = []
        hidden: list[RowKey] = []
        for row_key, (state, clustering) in rows.items():
            values = self.renderer.values(state, now)
            if values is None:
                hidden.append(row_key)
            else:
                visible.append(self.row(row_key, clustering, values))
        self.remove(connection, hidden)
        overwrite(connection, self.table, self.names, visible)

    def update(self, connection: sa.Connection, rows: Mapping[RowKey, RowState], now: int | None) -> None:
        """Show these rows as their states say, where nothing can have made one appear: key columns stay as they are."""
        visible: list[dict[str, object]] = []
        hidden: list[RowKey] = []
        stored = self.columns
        for row_key, state in rows.items():
            values = self.renderer.values(state, now)
            if values is None:
                hidden.append(row_key)
            else:
                visible.append({**self._bound(row_key), **dict(zip(stored, values, strict=True))})
        self.remove(connection, hidden)
        if visible and stored:
            connection.execute(self._update, visible)

    def delete_older(self, connection: sa.Connection, key: bytes, low: bytes, high: bytes, written: int) -> None:
        """Take away rows of an area that have nothing as new as `written`."""
        c, s = self.table.c, self._state.c
        newer = sa.exists().where(s.key == c[KEY], s.clustering == c[CLUSTERING], s.newest >= written)
        area = sa.and_(c[KEY] == key, c[CLUSTERING] >= low, c[CLUSTERING] < high)
        connection.execute(self.table.delete().where(area, ~newer))

    def forget_older(self, connection: sa.Connection, written: int) -> None:
        """Take away all rows that have nothing as new as `written`."""
        c, s = self.table.c, self._state.c
        same_row = s.clustering == (STATIC if self._static else c[CLUSTERING])
        newer = sa.exists().where(s.key == c[KEY], same_row, s.newest >= written)
        connection.execute(self.table.delete().where(~newer))

    def forget_all(self, connection: sa.Connection) -> None:
        """Take away all rows."""
        connection.execute(self.table.delete())

    def with_value(self, connection: sa.Connection, column: ColumnPlace) -> Iterable[list[RowKey]]:
        """The keys of rows that have a value in a stored column, in order and in chunks; it may be written between."""
        query = sa.select(*self._key_columns).where(self.table.c[column.stored].is_not(None))
        query = query.order_by(*self._key_columns).limit(CHUNK)
        rows = connection.execute(query).all()
        while rows:
            yield [(row[0], STATIC if self._static else row[1]) for row in rows]
            further = sa.tuple_(*self._key_columns) > sa.tuple_(*rows[-1])
            rows = connection.execute(query.where(further)).all()

    def clear(self, connection: sa.Connection, keys: Iterable[RowKey], column: ColumnPlace) -> None:
        """Make a stored column empty in these rows."""
        named = [key_column == sa.bindparam("b_" + key_column.name) for key_column in self._key_columns]
        emptied = self.table.update().where(*named).values({column.stored: None})
        connection.execute(emptied, [self._bound(row_key) for row_key in keys])

    def remove(self, connection: sa.Connection, keys: list[RowKey]) -> None:
        """Take these rows away, where they are there."""
        if keys:
            connection.execute(self._delete, [self._bound(row_key) for row_key in keys])

    def _bound(self, row_key: RowKey) -> dict[str, object]:
        return {"b_" + column.name: value for column, value in zip(self._key_columns, row_key, strict=False)}


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
