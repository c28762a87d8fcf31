"""Merges changes of one table into its state and what the view shows, in the caller's transaction.

First all changes of the piece are merged with each other: a row is read, merged and written once however many
changes it has. Then partition by partition what is deleted, then static rows, then rows in chunks. What merging did
not change is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.cql.order import clustering_key, range_limits
from tailrace_schemas.cql.values import codec, split_key
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Column, ColumnKind, Table
from tailrace_spark.rowstate.deletions import (
    NOTHING_DELETED,
    PartitionState,
    RangeDeletion,
    flatten,
    merge_partitions,
)
from tailrace_spark.rowstate.row import RowState, state_of
from tailrace_spark.rowstate.visible import VisibleColumns
from tailrace_spark.sinks.protocol import Delivered
from tailrace_spark.sinks.sql_catalog import Target, overwrite
from tailrace_spark.sinks.sql_layout import ColumnPlace
from tailrace_spark.sinks.sql_names import CLUSTERING, KEY
from tailrace_spark.sinks.sql_state import CHUNK, END, ROW, STATIC, Head, RowKey, StateTable, Stored, chunks
from tailrace_spark.sinks.sql_types import ToSql, to_sql

Clustering = tuple[bytes | None, ...]


@dataclass(slots=True)
class Gathered:
    """Changes of one table, merged with each other."""

    deletions: dict[bytes, PartitionState] = field(default_factory=dict)
    statics: dict[bytes, RowState] = field(default_factory=dict)
    rows: dict[RowKey, tuple[Clustering, RowState]] = field(default_factory=dict)


def gather(delivered: Iterable[Delivered]) -> Gathered:
    """Merge changes of one table with each other, in memory.

    Raises DecodeError for a change that cannot be merged (yet): counters, truncations, clusterings that are no
    values of their types.
    """
    found = Gathered()
    ranges: dict[bytes, list[RangeDeletion]] = {}
    for one in delivered:
        change, key = one.change, one.change.key
        if key is None:
            raise CorruptError(f"{change.table}: a {change.op.value} without a partition key")
        if change.op is Op.DELETE_PARTITION:
            partition = PartitionState(change.deletion, assignment=one.assignment)
            found.deletions[key] = merge_partitions(found.deletions.get(key, NOTHING_DELETED), partition)
        elif change.op is Op.DELETE_RANGE:
            ranges.setdefault(key, []).append(_range(change, one.assignment))
        elif change.static:
            static = found.statics.setdefault(key, said := state_of(change, one.assignment))
            if static is not said:
                static.absorb(said)
        else:
            clustering = change.clustering or ()
            at = ROW + clustering_key(change.table, clustering)
            _, row = found.rows.setdefault((key, at), (clustering, said := state_of(change, one.assignment)))
            if row is not said:
                row.absorb(said)
    for key, parts in ranges.items():
        partition = PartitionState(None, flatten(parts))
        found.deletions[key] = merge_partitions(found.deletions.get(key, NOTHING_DELETED), partition)
    return found


def _range(change: Change, assignment: Assignment | None) -> RangeDeletion:
    if change.start is None or change.end is None or change.deletion is None:
        raise CorruptError(f"{change.table}: a range deletion without bounds or deletion")
    start, end = range_limits(change.table, change.start, change.end)
    return RangeDeletion(start, end, change.deletion, assignment)


class TableMerge:
    """Merges into the tables of one target."""

    def __init__(self, target: Target, dialect: str) -> None:
        self.target = target
        table = target.layout.definition
        self._state = StateTable(target.state, overwrite(target.state, dialect))
        self._rows = _Shown(target, table, dialect, static=False)
        self._statics = None if target.static is None else _Shown(target, table, dialect, static=True)

    def merge(self, connection: sa.Connection, found: Gathered) -> int:
        """Merge what was gathered; how many rows' states changed (those that a deletion removed count too)."""
        keys = {*found.deletions, *found.statics, *(key for key, _ in found.rows)}
        heads = self._state.heads(connection, keys)
        changed = 0
        partitions = {key: head.deletions for key, head in heads.items()}
        for key, said in found.deletions.items():
            before = partitions.get(key, NOTHING_DELETED)
            after = partitions[key] = merge_partitions(before, said)
            if after != before:
                self._state.write_deletions(connection, key, before, after)
                changed += self._delete(connection, key, before, after)
        changed += self._merge_statics(connection, found, heads, partitions)
        for chunk in chunks(found.rows.items(), CHUNK):
            changed += self._merge_rows(connection, dict(chunk), partitions)
        return changed

    def show_again(self, connection: sa.Connection, stale: list[ColumnPlace]) -> None:
        """Bring rows up to date that have a value in these columns, which the source dropped, or reads otherwise now.

        Of a dropped column they lose the value, which may be their last one.
        """
        for place in stale:
            shown = self._statics if place.kind is ColumnKind.STATIC else self._rows
            if shown is None:
                continue
            for keys in shown.with_value(connection, place):
                known = self._state.rows(connection, keys)
                if not place.live:
                    shown.clear(connection, keys, place)
                shown.update(connection, {key: known[key].state for key in keys if key in known})

    def _delete(self, connection: sa.Connection, key: bytes, before: PartitionState, after: PartitionState) -> int:
        """Take a partition's new deletions to its rows. Rows that are older as a whole go without being read."""
        areas = [part for part in after.ranges if part not in before.ranges]
        if after.deletion is not None and after.deletion != before.deletion:
            areas.append(RangeDeletion(b"", None, after.deletion))
        changed = 0
        for area in areas:
            low, high = ROW + area.start, END if area.end is None else ROW + area.end
            self._rows.delete_older(connection, key, low, high, area.deletion.written)
            changed += self._state.delete_older(connection, key, low, high, area.deletion.written)
            for stored in self._state.between(connection, key, low, high):
                states = {at: _shadowed(one, RowState(), area.deletion) for at, one in stored.items()}
                touched = {at: state for at, state in states.items() if stored[at].differs(state)}
                self._state.write(connection, touched)
                self._rows.update(connection, touched)
                changed += len(touched)
        return changed

    def _merge_statics(
        self,
        connection: sa.Connection,
        found: Gathered,
        heads: Mapping[bytes, Head],
        partitions: Mapping[bytes, PartitionState],
    ) -> int:
        deleted = {key for key in found.deletions if key in heads and heads[key].static is not None}
        touched: dict[RowKey, RowState] = {}
        for key in {*found.statics, *deleted}:
            head = heads.get(key, Head())
            covering = partitions.get(key, NOTHING_DELETED).deletion
            state = _shadowed(head.static, found.statics.get(key, RowState()), covering)
            if _differs(head.static, state):
                touched[key, STATIC] = state
        if touched and self._statics is not None:
            self._state.write(connection, touched)
            self._statics.put(connection, {at: (state, ()) for at, state in touched.items()})
        return len(touched)

    def _merge_rows(
        self,
        connection: sa.Connection,
        rows: Mapping[RowKey, tuple[Clustering, RowState]],
        partitions: Mapping[bytes, PartitionState],
    ) -> int:
        stored = self._state.rows(connection, list(rows))
        touched: dict[RowKey, tuple[RowState, Clustering]] = {}
        for row_key, (clustering, said) in rows.items():
            key, at = row_key
            covering = partitions.get(key, NOTHING_DELETED).covering(at[len(ROW) :])
            state = _shadowed(stored.get(row_key), said, covering)
            if _differs(stored.get(row_key), state):
                touched[row_key] = state, clustering
        self._state.write(connection, {row_key: state for row_key, (state, _) in touched.items()})
        self._rows.put(connection, touched)
        return len(touched)


def _shadowed(stored: Stored | None, said: RowState, covering: Deletion | None) -> RowState:
    """What is known with what is said now, less what is covered. Takes `stored` and `said` for itself."""
    state = said
    if stored is not None:
        state = stored.state
        state.absorb(said)
    if covering is not None:
        state.shadow(covering)
    return state


def _differs(stored: Stored | None, state: RowState) -> bool:
    return (not state.empty) if stored is None else stored.differs(state)


class _Shown:
    """NAME__rows or NAME__static: puts rows, and takes them away."""

    def __init__(self, target: Target, table: Table, dialect: str, *, static: bool) -> None:
        shown = target.static if static else target.rows
        assert shown is not None  # noqa: S101 - the caller asks for statics only where there is a table for them
        self._table = shown
        self._static = static
        self._visible = VisibleColumns(table, static=static)
        layout = target.layout
        places = layout.of_kind(ColumnKind.STATIC if static else ColumnKind.REGULAR)
        self._values = [(p.source, p.stored, to_sql(_type(table, p), dialect)) for p in places]
        self._partition = _renderers(table.partition_key, layout.of_kind(ColumnKind.PARTITION_KEY), dialect)
        clustering = [] if static else layout.of_kind(ColumnKind.CLUSTERING)
        self._clustering = _renderers(() if static else table.clustering, clustering, dialect)
        self._key_types = [column.type for column in table.partition_key]
        key_columns = [shown.c[KEY]] if static else [shown.c[KEY], shown.c[CLUSTERING]]
        named = sa.and_(*[column == sa.bindparam("b_" + column.name) for column in key_columns])
        self._key_columns = key_columns
        self._upsert = overwrite(shown, dialect)
        self._delete = shown.delete().where(named)
        stored = [name for _, name, _ in self._values]
        self._update = shown.update().where(named).values({name: sa.bindparam(name) for name in stored})
        self._state = target.state

    def put(self, connection: sa.Connection, rows: Mapping[RowKey, tuple[RowState, Clustering]]) -> None:
        """Show these rows as their states say, whether they were there or not."""
        kept: list[dict[str, object]] = []
        gone: list[RowKey] = []
        for row_key, (state, clustering) in rows.items():
            values = self._visible.of(state)
            if values is None:
                gone.append(row_key)
            else:
                kept.append({**self._key(row_key), **self._key_values(row_key[0], clustering), **self._render(values)})
        self._remove(connection, gone)
        if kept:
            connection.execute(self._upsert, kept)

    def update(self, connection: sa.Connection, rows: Mapping[RowKey, RowState]) -> None:
        """Show these rows as their states say, where nothing can have made one appear: key columns stay as they are."""
        kept: list[dict[str, object]] = []
        gone: list[RowKey] = []
        for row_key, state in rows.items():
            values = self._visible.of(state)
            if values is None:
                gone.append(row_key)
            else:
                kept.append({**self._bound(row_key), **self._render(values)})
        self._remove(connection, gone)
        if kept and self._values:
            connection.execute(self._update, kept)

    def delete_older(self, connection: sa.Connection, key: bytes, low: bytes, high: bytes, written: int) -> None:
        """Take away rows of an area that have nothing as new as `written`."""
        c, s = self._table.c, self._state.c
        newer = sa.exists().where(s.key == c[KEY], s.clustering == c[CLUSTERING], s.newest >= written)
        area = sa.and_(c[KEY] == key, c[CLUSTERING] >= low, c[CLUSTERING] < high)
        connection.execute(self._table.delete().where(area, ~newer))

    def with_value(self, connection: sa.Connection, place: ColumnPlace) -> Iterable[list[RowKey]]:
        """The keys of rows that have a value in a stored column, in order and in chunks; it may be written between."""
        query = sa.select(*self._key_columns).where(self._table.c[place.stored].is_not(None))
        query = query.order_by(*self._key_columns).limit(CHUNK)
        found = connection.execute(query).all()
        while found:
            yield [(row[0], STATIC if self._static else row[1]) for row in found]
            further = sa.tuple_(*self._key_columns) > sa.tuple_(*found[-1])
            found = connection.execute(query.where(further)).all()

    def clear(self, connection: sa.Connection, keys: Iterable[RowKey], place: ColumnPlace) -> None:
        """Make a stored column empty in these rows."""
        named = [column == sa.bindparam("b_" + column.name) for column in self._key_columns]
        emptied = self._table.update().where(*named).values({place.stored: None})
        connection.execute(emptied, [self._bound(row_key) for row_key in keys])

    def _remove(self, connection: sa.Connection, keys: list[RowKey]) -> None:
        if keys:
            connection.execute(self._delete, [self._bound(row_key) for row_key in keys])

    def _key(self, row_key: RowKey) -> dict[str, object]:
        return {KEY: row_key[0]} if self._static else {KEY: row_key[0], CLUSTERING: row_key[1]}

    def _bound(self, row_key: RowKey) -> dict[str, object]:
        return {"b_" + name: value for name, value in self._key(row_key).items()}

    def _key_values(self, key: bytes, clustering: Clustering) -> dict[str, object]:
        values: list[bytes | None] = [*split_key(self._key_types, key)]
        pairs = [*zip(self._partition, values, strict=True)]
        pairs += zip(self._clustering, clustering, strict=True)
        return {name: _shown(decode, render, data) for (name, decode, render), data in pairs}

    def _render(self, values: Mapping[str, Any]) -> dict[str, object]:
        return {
            stored: None if (value := values.get(source)) is None else render(value)
            for source, stored, render in self._values
        }


Renderer = tuple[str, ToSql, ToSql]


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
