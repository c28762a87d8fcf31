"""What SELECT returns of a row's state: live cells as plain values, collections in Cassandra's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from tailrace_schemas.change import Deletion, Marker
from tailrace_schemas.cql.order import sortable
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.table import Column, Table
from tailrace_spark.rowstate.cells import CellState, covers
from tailrace_spark.rowstate.deletions import supersedes
from tailrace_spark.rowstate.row import ColumnState, RowState

Elements = list[tuple[bytes, bytes]]
"""(path, value) of the live cells of a multi-cell column."""


class VisibleColumns:
    """The columns of one kind of row, as one definition of the table shows them.

    `static` chooses between static and regular columns. Cells of columns that the table does not have, and those
    written before their column was last dropped, are not data.
    """

    def __init__(self, table: Table, *, static: bool = False) -> None:
        self.columns: tuple[Column, ...] = table.static if static else table.regular
        self._static = static
        self._dropped = {drop.column.name_bytes: drop.dropped_at for drop in table.dropped}
        self._plan = [
            (c.name, c.name_bytes, c.type.multicell, self._dropped.get(c.name_bytes), _show(c.type))
            for c in self.columns
        ]

    def of(self, state: RowState, covering: Deletion | None = None, at: int | None = None) -> dict[str, Any] | None:
        """The row's columns that are not null, by name, or None where SELECT returns no row.

        A row is there when its marker is live or any of its cells is; a static row when one of its cells is.
        `covering` is the strongest partition or range deletion over the row. `at`, in seconds since the epoch, is
        when: what expires by then is gone; None asks for no expiry. Values are those of tailrace_schemas.cql.values:
        a list or set is a list, a map a list of {key, value}, a user type a dict of its fields.
        Raises DecodeError where a value is none of its type.
        """
        active = state.deletion
        if covering is not None and (active is None or not supersedes(active, covering)):
            active = covering
        there = not self._static and _marker_lives(state.marker, active, at)
        values: dict[str, Any] = {}
        for name, name_bytes, multicell, dropped_at, show in self._plan:
            column = state.columns.get(name_bytes)
            if column is None:
                continue
            live = _live_cells(column, active, dropped_at, at)
            if (None in live) is multicell:
                continue  # cells of a dropped column of this name, simple where this one is not
            if live:
                there = True
                shown = show(live)
                if shown is not None:
                    values[name] = shown
        return values if there else None


def visible(
    state: RowState, table: Table, covering: Deletion | None = None, at: int | None = None, *, static: bool = False
) -> dict[str, Any] | None:
    """`VisibleColumns(table, static=static).of(state, covering, at)`, for one row."""
    return VisibleColumns(table, static=static).of(state, covering, at)


def _marker_lives(marker: Marker | None, active: Deletion | None, at: int | None) -> bool:
    if marker is None or covers(active, marker.written):
        return False
    return at is None or marker.expires is None or at < marker.expires


def _live_cells(
    column: ColumnState, active: Deletion | None, dropped_at: int | None, at: int | None
) -> dict[bytes | None, bytes]:
    """The bytes of the live cells by path."""
    floor = active if column.deletion is None or (active and supersedes(active, column.deletion)) else column.deletion
    return {
        path: cell.value
        for path, cell in column.cells.items()
        if cell.value is not None
        and not covers(floor, cell.written)
        and (dropped_at is None or cell.written > dropped_at)
        and _lasts(cell, at)
    }


def _lasts(cell: CellState, at: int | None) -> bool:
    return at is None or cell.expires is None or at < cell.expires


@lru_cache(maxsize=4096)
def _show(cql_type: CqlType) -> Callable[[Mapping[bytes | None, bytes]], Any]:
    """What makes the live cells of a column of this type, never none of them, one plain value."""
    if not cql_type.multicell:
        decode = codec(cql_type).decode
        return lambda cells: decode(cells[None])
    if cql_type.kind == "udt":
        return _show_user_type(cql_type)
    # A list's paths are time UUIDs in TimeUUIDType's order, not in that of their bytes.
    compared = CqlType("timeuuid") if cql_type.kind == "list" else cql_type.args[0]

    def ordered(cells: Mapping[bytes | None, bytes]) -> Elements:
        return sorted(
            ((path or b"", value) for path, value in cells.items()), key=lambda item: sortable(compared, item[0], False)
        )

    decode = codec(cql_type.args[-1]).decode
    if cql_type.kind == "list":
        return lambda cells: [decode(value) for _, value in ordered(cells)]
    if cql_type.kind == "set":
        return lambda cells: [decode(path) for path, _ in ordered(cells)]
    decode_key = codec(cql_type.args[0]).decode
    return lambda cells: [{"key": decode_key(path), "value": decode(value)} for path, value in ordered(cells)]


def _show_user_type(cql_type: CqlType) -> Callable[[Mapping[bytes | None, bytes]], Any]:
    """A multi-cell user type: its cells' paths are the fields' numbers, as two bytes (UserType.cellPathForField)."""
    fields = [
        (index.to_bytes(2, "big"), name, codec(arg).decode)
        for index, (name, arg) in enumerate(zip(cql_type.fields, cql_type.args, strict=True))
    ]
    return lambda cells: {name: decode(cells[path]) if path in cells else None for path, name, decode in fields}


__all__: Final = ["VisibleColumns", "visible"]
