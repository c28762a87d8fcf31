"""What users see: the rows of NAME__rows or NAME__static, rendered from states, put there and taken away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from tailrace_schemas.change import Change
from tailrace_schemas.cql.values import codec, split_key
from tailrace_schemas.table import Column, ColumnKind, Table
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.rowstate.visible import VisibleColumns
from tailrace_spark.sinks.sql_bulk import overwrite
from tailrace_spark.sinks.sql_catalog import Target
from tailrace_spark.sinks.sql_gathered import Clustering, RowKey
from tailrace_spark.sinks.sql_layout import ColumnPlace
from tailrace_spark.sinks.sql_names import CLUSTERING, KEY, STATIC
from tailrace_spark.sinks.sql_state import CHUNK
from tailrace_spark.sinks.sql_types import ToSql, to_sql

_LONG_AGO: Final = -(2**63)
Renderer = tuple[str, ToSql, ToSql]
"""(stored name, bytes to a plain value, that to what is bound)."""


class ShownTable:
    """Puts rows of one of both tables, and takes them away."""

    def __init__(self, target: Target, dialect: str, *, static: bool) -> None:
        """With `static`, the target must have a table for static columns."""
        shown = target.static if static else target.rows
        if shown is None:
            raise ValueError(f"{target.layout.name} has no static columns")
        table, layout = target.layout.definition, target.layout
        self.table = shown
        self._static = static
        self._visible = VisibleColumns(table, static=static)
        places = layout.of_kind(ColumnKind.STATIC if static else ColumnKind.REGULAR)
        self._values = [(p.source, p.stored, to_sql(_type(table, p), dialect)) for p in places]
        dropped = {drop.column.name_bytes: drop.dropped_at for drop in table.dropped}
        self._plain = {
            column.name_bytes: (place, codec(column.type).decode, render, dropped.get(column.name_bytes, _LONG_AGO))
            for place, (source, _, render) in enumerate(self._values)
            for column in table.columns
            if column.name == source and not column.type.multicell
        }
        clustering = [] if static else layout.of_kind(ColumnKind.CLUSTERING)
        self._partition = _renderers(table.partition_key, layout.of_kind(ColumnKind.PARTITION_KEY), dialect)
        self._clustering = _renderers(() if static else table.clustering, clustering, dialect)
        self._key_types = [column.type for column in table.partition_key]
        self._key_columns = [shown.c[KEY]] if static else [shown.c[KEY], shown.c[CLUSTERING]]
        named = sa.and_(*[column == sa.bindparam("b_" + column.name) for column in self._key_columns])
        self._delete = shown.delete().where(named)
        stored = [name for _, name, _ in self._values]
        self._update = shown.update().where(named).values({name: sa.bindparam(name) for name in stored})
        keys = [name for name, _, _ in (*self._partition, *self._clustering)]
        self.names: tuple[str, ...] = (*[column.name for column in self._key_columns], *keys, *stored)
        """The columns that `row` gives values for, in order."""
        self.columns: tuple[str, ...] = tuple(stored)
        """Those of `values`."""
        self._state = target.state

    def values(self, state: RowState, at: int | None) -> list[object] | None:
        """What the columns that are no keys show of a state at a time, ready to bind; None: no row."""
        values = self._visible.of(state, at=at)
        return None if values is None else self._render(values)

    def plain_values(self, change: Change, written: int) -> list[object] | None:
        """`values` of a plain change (rowstate.plain) that was written at `written`, without a state."""
        values: list[object] = [None] * len(self.columns)
        there = change.marker is not None
        for cell in change.cells:
            plan = self._plain.get(cell.column.name_bytes)
            if plan is None or written <= plan[3] or cell.value is None:
                continue  # the column was dropped
            there = True
            place, decode, render, _ = plan
            value = decode(cell.value)
            if value is not None:
                values[place] = render(value)
        return values if there else None

    def row(self, row_key: RowKey, clustering: Clustering, values: Sequence[object]) -> tuple[object, ...]:
        """A whole row, under `names`."""
        head = (row_key[0],) if self._static else row_key
        return (*head, *self.key_values(row_key[0], clustering), *values)

    def key_values(self, key: bytes, clustering: Clustering) -> list[object]:
        """The key columns, ready to bind."""
        parts = split_key(self._key_types, key)
        shown = [_shown(decode, render, data) for (_, decode, render), data in zip(self._partition, parts, strict=True)]
        if self._clustering:
            pairs = zip(self._clustering, clustering, strict=True)
            shown += [_shown(decode, render, data) for (_, decode, render), data in pairs]
        return shown

    def put(
        self, connection: sa.Connection, rows: Mapping[RowKey, tuple[RowState, Clustering]], at: int | None
    ) -> None:
        """Show these rows as their states say, whether they were there or not."""
        kept: list[tuple[object, ...]] = []
        gone: list[RowKey] = []
        for row_key, (state, clustering) in rows.items():
            values = self.values(state, at)
            if values is None:
                gone.append(row_key)
            else:
                kept.append(self.row(row_key, clustering, values))
        self._remove(connection, gone)
        overwrite(connection, self.table, self.names, kept)

    def update(self, connection: sa.Connection, rows: Mapping[RowKey, RowState], at: int | None) -> None:
        """Show these rows as their states say, where nothing can have made one appear: key columns stay as they are."""
        kept: list[dict[str, object]] = []
        gone: list[RowKey] = []
        stored = [name for _, name, _ in self._values]
        for row_key, state in rows.items():
            values = self.values(state, at)
            if values is None:
                gone.append(row_key)
            else:
                kept.append({**self._bound(row_key), **dict(zip(stored, values, strict=True))})
        self._remove(connection, gone)
        if kept and stored:
            connection.execute(self._update, kept)

    def delete_older(self, connection: sa.Connection, key: bytes, low: bytes, high: bytes, written: int) -> None:
        """Take away rows of an area that have nothing as new as `written`."""
        c, s = self.table.c, self._state.c
        newer = sa.exists().where(s.key == c[KEY], s.clustering == c[CLUSTERING], s.newest >= written)
        area = sa.and_(c[KEY] == key, c[CLUSTERING] >= low, c[CLUSTERING] < high)
        connection.execute(self.table.delete().where(area, ~newer))

    def forget_older(self, connection: sa.Connection, written: int) -> None:
        """Take away all rows that have nothing as new as `written`."""
        c, s = self.table.c, self._state.c
        at = s.clustering == (STATIC if self._static else c[CLUSTERING])
        newer = sa.exists().where(s.key == c[KEY], at, s.newest >= written)
        connection.execute(self.table.delete().where(~newer))

    def with_value(self, connection: sa.Connection, place: ColumnPlace) -> Iterable[list[RowKey]]:
        """The keys of rows that have a value in a stored column, in order and in chunks; it may be written between."""
        query = sa.select(*self._key_columns).where(self.table.c[place.stored].is_not(None))
        query = query.order_by(*self._key_columns).limit(CHUNK)
        found = connection.execute(query).all()
        while found:
            yield [(row[0], STATIC if self._static else row[1]) for row in found]
            further = sa.tuple_(*self._key_columns) > sa.tuple_(*found[-1])
            found = connection.execute(query.where(further)).all()

    def clear(self, connection: sa.Connection, keys: Iterable[RowKey], place: ColumnPlace) -> None:
        """Make a stored column empty in these rows."""
        named = [column == sa.bindparam("b_" + column.name) for column in self._key_columns]
        emptied = self.table.update().where(*named).values({place.stored: None})
        connection.execute(emptied, [self._bound(row_key) for row_key in keys])

    def _remove(self, connection: sa.Connection, keys: list[RowKey]) -> None:
        if keys:
            connection.execute(self._delete, [self._bound(row_key) for row_key in keys])

    def _bound(self, row_key: RowKey) -> dict[str, object]:
        return {"b_" + column.name: value for column, value in zip(self._key_columns, row_key, strict=False)}

    def _render(self, values: Mapping[str, Any]) -> list[object]:
        return [None if (value := values.get(source)) is None else render(value) for source, _, render in self._values]


def _renderers(columns: tuple[Column, ...], places: list[ColumnPlace], dialect: str) -> list[Renderer]:
    return [
        (place.stored, codec(column.type).decode, to_sql(column.type, dialect))
        for column, place in zip(columns, places, strict=True)
    ]


def _shown(decode: ToSql, render: ToSql, data: bytes | None) -> object:
    value = None if data is None else decode(data)
    return None if value is None else render(value)


def _type(table: Table, place: ColumnPlace) -> Any:
    return next(column.type for column in table.columns if column.name == place.source)
