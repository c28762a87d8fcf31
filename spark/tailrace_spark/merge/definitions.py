"""Several writers' definitions of one table as one: agents learn of a schema change at different moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tailrace_schemas.cql.types import CqlType, parts
from tailrace_schemas.table import Column, ColumnKind, DroppedColumn, Table
from tailrace_spark.batch.delivery import Delivered


def merge_definitions(first: Table, second: Table, *, second_newer: bool = True) -> Table:
    """The definition that both know together, of one table id.

    A column was dropped when the definition that knows its latest drop says so. With no drop between them, a column
    that one of them has was added. Of two types the wider holds: user types only ever gain fields. What was renamed,
    key columns and fields of user types, has the name that the newer one gives it: the second, unless told otherwise.
    All but these names comes out the same in every order.
    """
    if first.id != second.id:
        raise ValueError(f"{first} has two table ids, {first.id} and {second.id}: they are two tables")
    # Agents learn of DDL at different moments, so a batch may have changes under both definitions.
    if first == second:
        return first
    older, newer = (first, second) if second_newer else (second, first)
    columns: list[Column] = []
    dropped: list[DroppedColumn] = []
    for name in sorted({c.name_bytes for t in (first, second) for c in (*t.columns, *_dropped(t).values())}):
        live, drop = _decide(name, older, newer)
        if live is not None:
            columns.append(live)
        if drop is not None:
            dropped.append(drop)
    return replace(
        first,
        partition_key=newer.partition_key,
        clustering=newer.clustering,
        static=tuple(c for c in columns if c.kind is ColumnKind.STATIC),
        regular=tuple(c for c in columns if c.kind is not ColumnKind.STATIC),
        dropped=tuple(dropped),
    )


def _dropped(table: Table) -> dict[bytes, Column]:
    return {drop.column.name_bytes: drop.column for drop in table.dropped}


def _decide(name: bytes, older: Table, newer: Table) -> tuple[Column | None, DroppedColumn | None]:
    """(the live column of this name, its latest drop), each None where there is none."""
    older_drop, newer_drop = _drop(older, name), _drop(newer, name)
    drops = [drop for drop in (older_drop, newer_drop) if drop is not None]
    latest = max(drops, key=lambda drop: drop.dropped_at, default=None)
    dropped_at = None if latest is None else latest.dropped_at
    # Drop times order what happened to a name: after DROP, ADD, DROP TableMetadata.droppedColumns has the latest.
    knowing = [t for t, drop in ((newer, newer_drop), (older, older_drop)) if (drop and drop.dropped_at) == dropped_at]
    live = [column for t in knowing for column in t.columns if column.name_bytes == name]
    return max(live, key=lambda column: _width(column.type), default=None), latest  # the first of equals


def _width(cql_type: CqlType) -> int:
    """Grows with each field that a user type in it gains."""
    # ALTER TYPE can only add fields (AlterTypeStatement), and ALTER TABLE no longer changes types (CASSANDRA-12443).
    return sum(1 + len(nested.args) for nested in set(parts((cql_type,))))


def _drop(table: Table, name: bytes) -> DroppedColumn | None:
    return next((drop for drop in table.dropped if drop.column.name_bytes == name), None)


def newest_definition(changes: Sequence[Delivered]) -> tuple[Table, int]:
    """The definition that these changes of one table have together, and when it was announced."""
    shapes = {id(delivered.change.table): (delivered.change.table, delivered.announced) for delivered in changes}
    (table, announced), *further = shapes.values()
    for definition, offset in further:
        table = merge_definitions(table, definition, second_newer=offset >= announced)
        announced = max(announced, offset)
    return table, announced
