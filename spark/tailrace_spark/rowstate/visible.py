"""Visible rows: live cells of a state as plain values, collections in Cassandra's order, with their times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from tailrace_schemas.change import EXPIRED_TTL, Deletion, Marker
from tailrace_schemas.cql.order import sortable
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.table import Column, Table
from tailrace_spark.rowstate.cells import CellState, covers
from tailrace_spark.rowstate.counters import total
from tailrace_spark.rowstate.deletions import stronger
from tailrace_spark.rowstate.row import ColumnState, RowState

Cells = Mapping[bytes | None, CellState]
"""The live cells of a column, never none of them; each has a value."""
Times = tuple[int, int | None]
"""WRITETIME in microseconds and TTL in seconds that are left, None where a cell does not expire."""
ColumnTimes = Times | list[Times | None]
"""Those of a simple column, or of a multi-cell one's elements: in the order of its value, a user type's by field."""


@dataclass(frozen=True, slots=True)
class _ColumnPlan:
    """Reads one column: its value, and its cells in the order of the value (None: counters have no times)."""

    name: str
    name_bytes: bytes
    multicell: bool
    counter: bool
    dropped_at: int | None
    value: Callable[[Cells], Any]
    elements: Callable[[Cells], list[CellState | None]]


class VisibleColumns:
    """The columns of one kind of row, as one definition of the table shows them.

    `static` chooses between static and regular columns. Cells of columns that the table does not have, and those
    written before their column was last dropped, are not data.
    """

    def __init__(self, table: Table, *, static: bool = False) -> None:
        self.columns: tuple[Column, ...] = table.static if static else table.regular
        self._static = static
        dropped = {drop.column.name_bytes: drop.dropped_at for drop in table.dropped}
        self._plan = [_plan_of(column, dropped.get(column.name_bytes)) for column in self.columns]

    def values(self, state: RowState, covering: Deletion | None = None, now: int | None = None) -> list[Any] | None:
        """The values of `columns`, in order, None for null; or None where SELECT returns no row.

        `covering` is the strongest partition or range deletion, or truncation, over the row. `now`, in seconds since
        the epoch, hides what has expired by then; None hides none of it. Values are those of
        tailrace_schemas.cql.values: a list or set is a list, a map a list of {key, value}, a user type a dict. A
        counter is the sum of its shards, an int. Raises DecodeError where a value is none of its type.
        """
        live = self._live(state, covering, now)
        if live is None:
            return None
        return [None if cells is None else plan.value(cells) for plan, cells in zip(self._plan, live, strict=True)]

    def of(self, state: RowState, covering: Deletion | None = None, now: int | None = None) -> dict[str, Any] | None:
        """`values` by the names of the columns, those that are not null."""
        values = self.values(state, covering, now)
        if values is None:
            return None
        return {plan.name: value for plan, value in zip(self._plan, values, strict=True) if value is not None}

    def times(self, state: RowState, covering: Deletion | None = None, now: int = 0) -> dict[str, ColumnTimes] | None:
        """WRITETIME and TTL of what `of` shows at the same moment, by column; None where SELECT returns no row.

        A value of no bytes, which `of` takes for null, has its times too, as in CQL. Counters have none.
        """
        live = self._live(state, covering, now)
        if live is None:
            return None
        column_times: dict[str, ColumnTimes] = {}
        for plan, cells in zip(self._plan, live, strict=True):
            if cells is None or plan.counter:
                continue
            if plan.multicell:
                column_times[plan.name] = [None if cell is None else _times(cell, now) for cell in plan.elements(cells)]
            else:
                column_times[plan.name] = _times(cells[None], now)
        return column_times

    def _live(self, state: RowState, covering: Deletion | None, now: int | None) -> list[Cells | None] | None:
        """The live cells of each column, None where it has none; or None where SELECT returns no row."""
        # A row exists while its marker or any of its cells is live (Row.hasLiveData); static rows have no marker.
        active = stronger(state.deletion, covering)
        exists = not self._static and _marker_lives(state.marker, active, now)
        live: list[Cells | None] = []
        for plan in self._plan:
            column = state.columns.get(plan.name_bytes)
            cells = None if column is None else _live(plan, column, active, now)
            exists = exists or (cells is not None and not state.strict)
            live.append(cells)
        return live if exists else None


def visible(
    state: RowState, table: Table, covering: Deletion | None = None, now: int | None = None, *, static: bool = False
) -> dict[str, Any] | None:
    """`VisibleColumns(table, static=static).of(state, covering, at)`, for one row."""
    return VisibleColumns(table, static=static).of(state, covering, now)


def _marker_lives(marker: Marker | None, active: Deletion | None, now: int | None) -> bool:
    # From `expires` on it is expired, that second included (LivenessInfo.isLive: `nowInSec < localExpirationTime`).
    if marker is None or marker.ttl == EXPIRED_TTL or covers(active, marker.written):
        return False
    return now is None or marker.expires is None or now < marker.expires


def _live(plan: _ColumnPlan, column: ColumnState, active: Deletion | None, now: int | None) -> Cells | None:
    """The live cells, if the column has any."""
    floor, dropped_at = stronger(column.deletion, active), plan.dropped_at
    live: Cells = column.cells
    for cell in column.cells.values():
        if not _lives(cell, floor, dropped_at, now):
            live = {
                path: candidate for path, candidate in column.cells.items() if _lives(candidate, floor, dropped_at, now)
            }
            break
    if not live:
        return None
    if column.counter:
        # The tombstone of a counter wins at any time (Cells.resolveCounter, CASSANDRA-7346).
        return live if plan.counter and None not in live else None
    for cell in live.values():
        if cell.value is None:
            live = {path: candidate for path, candidate in live.items() if candidate.value is not None}
            break
    # Others are cells of a dropped column of this name, simple where this one is not.
    return live if live and (None in live) is not plan.multicell else None


def _lives(cell: CellState, floor: Deletion | None, dropped_at: int | None, now: int | None) -> bool:
    """Whether a cell is neither covered nor dropped nor expired; it may be a tombstone."""
    # At the microsecond of the drop a cell is dropped too (DroppedColumn.droppedTime). That holds after the column was
    # added again.
    return not covers(floor, cell.written) and (dropped_at is None or cell.written > dropped_at) and _lasts(cell, now)


def _lasts(cell: CellState, now: int | None) -> bool:
    """Whether a cell has not expired; a tombstone stays one."""
    return now is None or cell.ttl is None or cell.expires is None or now < cell.expires


def _times(cell: CellState, now: int) -> Times:
    return cell.written, None if cell.ttl is None or cell.expires is None else cell.expires - now


@lru_cache(maxsize=4096)
def _value(cql_type: CqlType) -> Callable[[Cells], Any]:
    """A function from the live cells of a column of this type to one plain value."""
    if cql_type.kind == "counter":
        return lambda cells: total([path for path in cells if path is not None])
    if not cql_type.multicell:
        decode = codec(cql_type).decode
        return lambda cells: decode(cells[None].value or b"")
    if cql_type.kind == "udt":
        return _user_type(cql_type)
    ordered = _ordered(cql_type)
    decode = codec(cql_type.args[-1]).decode
    if cql_type.kind == "list":
        return lambda cells: [decode(cell.value or b"") for _, cell in ordered(cells)]
    if cql_type.kind == "set":
        return lambda cells: [decode(path) for path, _ in ordered(cells)]
    decode_key = codec(cql_type.args[0]).decode
    return lambda cells: [
        {"key": decode_key(path), "value": decode(cell.value or b"")} for path, cell in ordered(cells)
    ]


def _plan_of(column: Column, dropped_at: int | None) -> _ColumnPlan:
    cql_type = column.type
    counter = cql_type.kind == "counter"
    value, elements = _value(cql_type), _elements(cql_type)
    return _ColumnPlan(column.name, column.name_bytes, cql_type.multicell, counter, dropped_at, value, elements)


@lru_cache(maxsize=4096)
def _elements(cql_type: CqlType) -> Callable[[Cells], list[CellState | None]]:
    """A function that puts the live cells of a column of this type in the order of its value."""
    if not cql_type.multicell:
        return lambda cells: list(cells.values())
    if cql_type.kind == "udt":
        paths = _fields(cql_type)
        return lambda cells: [cells.get(path) for path in paths]
    ordered = _ordered(cql_type)
    return lambda cells: [cell for _, cell in ordered(cells)]


def _ordered(cql_type: CqlType) -> Callable[[Cells], list[tuple[bytes, CellState]]]:
    """(path, cell) in the order of a collection's elements."""
    # A list's paths are time UUIDs in TimeUUIDType's order, not in that of their bytes.
    compared = CqlType("timeuuid") if cql_type.kind == "list" else cql_type.args[0]

    def ordered(cells: Cells) -> list[tuple[bytes, CellState]]:
        elements = [(key or b"" if cell.path is None else cell.path, cell) for key, cell in cells.items()]
        return sorted(elements, key=lambda item: sortable(compared, item[0], False))

    return ordered


def _fields(cql_type: CqlType) -> list[bytes]:
    """The paths of a multi-cell user type: its fields' numbers, as two bytes (UserType.cellPathForField)."""
    return [index.to_bytes(2, "big") for index in range(len(cql_type.args))]


def _user_type(cql_type: CqlType) -> Callable[[Cells], Any]:
    decoders = [codec(arg).decode for arg in cql_type.args]
    fields = list(zip(_fields(cql_type), cql_type.fields, decoders, strict=True))
    return lambda cells: {
        name: decode(cells[path].value or b"") if path in cells else None for path, name, decode in fields
    }


__all__: Final = ["Cells", "ColumnTimes", "Times", "VisibleColumns", "visible"]
