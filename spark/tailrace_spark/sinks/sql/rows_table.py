"""What users see: the rows of NAME__rows or NAME__static, rendered from states, put there and taken away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from tailrace_schemas.table import ColumnKind
from tailrace_spark.merge.batch_changes import Clustering
from tailrace_spark.merge.state_keys import STATIC
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.naming import CLUSTERING, KEY
from tailrace_spark.sinks.sql.catalog import Target
from tailrace_spark.sinks.sql.layout import ColumnPlace
from tailrace_spark.sinks.sql.render import Renderer
from tailrace_spark.sinks.state_store.bulk import overwrite
from tailrace_spark.sinks.state_store.state_table import CHUNK


class VisibleTable:
    """Puts rows of one of both tables, and takes them away."""

    def __init__(self, target: Target, dialect: str, *, static: bool) -> None:
        """With `static`, the target must have a table for static columns."""
        shown = target.static if static else target.rows
        if shown is None:
            raise ValueError(f"{target.layout.name} has no static columns")
        table, layout = target.layout.definition, target.layout
        self.table = shown
        self._static = static
        self._dialect = dialect
        places = layout.of_kind(ColumnKind.STATIC if static else ColumnKind.REGULAR)
        self.renderer = Renderer(table, [place.source for place in places], dialect, static=static)
        clustering = [] if static else layout.of_kind(ColumnKind.CLUSTERING)
        keys = [place.stored for place in (*layout.of_kind(ColumnKind.PARTITION_KEY), *clustering)]
        self._key_columns = [shown.c[KEY]] if static else [shown.c[KEY], shown.c[CLUSTERING]]
        named = sa.and_(*[column == sa.bindparam("b_" + column.name) for column in self._key_columns])
        self._delete = shown.delete().where(named)
        stored = [place.stored for place in places]
        self._update = shown.update().where(named).values({name: sa.bindparam(name) for name in stored})
        self.names: tuple[str, ...] = (*[column.name for column in self._key_columns], *keys, *stored)
        """The columns of a whole row, in order."""
        self.columns: tuple[str, ...] = tuple(stored)
        """Those that are no keys."""
        self._state = target.state

    def row(self, row_key: RowKey, clustering: Clustering, values: Sequence[object]) -> tuple[object, ...]:
        """A whole row, under `names`."""
        head = (row_key[0],) if self._static else row_key
        return (*head, *self.renderer.keys(row_key[0], clustering), *values)

    def put(
        self, connection: sa.Connection, rows: Mapping[RowKey, tuple[RowState, Clustering]], at: int | None
    ) -> None:
        """Show these rows as their states say, whether they were there or not."""
        kept: list[tuple[object, ...]] = []
        gone: list[RowKey] = []
        for row_key, (state, clustering) in rows.items():
            values = self.renderer.values(state, at)
            if values is None:
                gone.append(row_key)
            else:
                kept.append(self.row(row_key, clustering, values))
        self.remove(connection, gone)
        overwrite(connection, self.table, self.names, kept)

    def update(self, connection: sa.Connection, rows: Mapping[RowKey, RowState], at: int | None) -> None:
        """Show these rows as their states say, where nothing can have made one appear: key columns stay as they are."""
        kept: list[dict[str, object]] = []
        gone: list[RowKey] = []
        stored = self.columns
        for row_key, state in rows.items():
            values = self.renderer.values(state, at)
            if values is None:
                gone.append(row_key)
            else:
                kept.append({**self._bound(row_key), **dict(zip(stored, values, strict=True))})
        self.remove(connection, gone)
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

    def remove(self, connection: sa.Connection, keys: list[RowKey]) -> None:
        """Take these rows away, where they are there."""
        if keys:
            connection.execute(self._delete, [self._bound(row_key) for row_key in keys])

    def _bound(self, row_key: RowKey) -> dict[str, object]:
        return {"b_" + column.name: value for column, value in zip(self._key_columns, row_key, strict=False)}
