"""Builds the rows of both of a table's own tables: new rows, and rows that merging changed. It asks and writes nothing.

It is all that is computed for each row, so it is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tailrace_schemas.change import Change, Deletion
from tailrace_schemas.cql.coding import Codec
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec, split_key
from tailrace_schemas.table import Column, Table
from tailrace_spark.merge.batch_changes import RowChanges
from tailrace_spark.merge.row import UNCHANGED, ShownRows, fast_insert, fast_merge, merge_row
from tailrace_spark.merge.stored_row import EncodedState, RowKey, StateTableRow, row_of, state_row
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.plain import PlainRow
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.rowstate.visible import VisibleColumns
from tailrace_spark.sinks.sql.types import ToSql, same, to_sql

_LONG_AGO: Final = -(2**63)  # no write time: to Cassandra it stands for "no timestamp"
VisibleRow = tuple[object, ...]
"""A row of NAME__rows, in the order of VisibleTable.names."""
NewRow = tuple[StateTableRow, VisibleRow | None]
"""A row that is not stored yet: of the state table, and its visible row where SELECT returns one."""
RowMerge = tuple[RowKey, RowChanges, EncodedState, Deletion | None]
"""A stored row and its changes: its key, the changes, what is stored, and the strongest deletion above it."""


class _Value:
    """One column: bytes to a plain value, that to what is bound. `dropped_at`: what is older is no data."""

    def __init__(self, index: int, column_type: CqlType, dialect: str, dropped_at: int) -> None:
        self.index = index
        self.codec: Codec = codec(column_type)
        self.dropped_at = dropped_at
        render = to_sql(column_type, dialect)
        self._render: ToSql | None = None if render is same else render

    def of(self, data: bytes) -> object:
        """Of a cell's or key's bytes."""
        value = self.codec.decode(data)
        return value if value is None or self._render is None else self._render(value)

    def bound(self, value: object) -> object:
        """Of a plain value."""
        return value if value is None or self._render is None else self._render(value)


class Renderer:
    """Renders the rows of one of both tables, as one definition and layout of the table show them."""

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        dialect: str,
        *,
        static: bool,
        shown_rows: ShownRows | None = None,
    ) -> None:
        """`names` are the source's of the columns that are no keys, in the order in which they are to be bound.

        Rows outside `shown_rows` are rendered as none.
        """
        self._visible = VisibleColumns(table, static=static)
        columns: tuple[Column, ...] = self._visible.columns
        indexes = {column.name: index for index, column in enumerate(columns)}
        dropped = {drop.column.name_bytes: drop.dropped_at for drop in table.dropped}
        rendered = [columns[indexes[name]] for name in names]
        self._values = [
            _Value(indexes[column.name], column.type, dialect, dropped.get(column.name_bytes, _LONG_AGO))
            for column in rendered
        ]
        self._plain: dict[bytes, tuple[int, _Value]] = {
            column.name_bytes: (index, value)
            for index, (column, value) in enumerate(zip(rendered, self._values, strict=True))
            if not column.type.multicell
        }
        self._shown_rows = shown_rows
        self._partition = [_Value(0, column.type, dialect, 0) for column in table.partition_key]
        self._clustering = [_Value(0, column.type, dialect, 0) for column in (() if static else table.clustering)]
        self._key_types = [column.type for column in table.partition_key]
        self._last: tuple[bytes, list[object]] = (b"", [])
        self._any = False  # whether `_last` is of a key at all

    def values(self, state: RowState, now: int | None) -> list[object] | None:
        """What the columns that are no keys show of a state at a time; None: no row. Raises DecodeError."""
        values = self._visible.values(state, None, now)
        if values is None or not (self._shown_rows is None or self._shown_rows.shows(values)):
            return None
        return [value.bound(values[value.index]) for value in self._values]

    def plain_values(self, change: Change, written: int) -> list[object] | None:
        """`values` of a plain change (rowstate.plain) that was written at `written`, without a state."""
        values: list[object] = [None] * len(self._values)
        live = change.marker is not None
        for cell in change.cells:
            plan = self._plain.get(cell.column.name_bytes)
            if plan is None or written <= plan[1].dropped_at or cell.value is None:
                continue  # the column was dropped
            live = True
            values[plan[0]] = plan[1].of(cell.value)
        return values if live and (self._shown_rows is None or self._shown_rows.shows_change(change, written)) else None

    def merged_values(self, row: PlainRow) -> list[object] | None:
        """`values` of a row that was merged as bytes (rowstate.plain), without a state."""
        values: list[object] = [None] * len(self._values)
        live = row.marker is not None
        for index in range(len(row.names)):
            column = self._plain.get(row.names[index])
            if column is None or row.times[index] <= column[1].dropped_at:
                continue  # the column was dropped
            live = True
            values[column[0]] = column[1].of(row.values[index])
        return values if live and (self._shown_rows is None or self._shown_rows.shows_cells(row)) else None

    def keys(self, key: bytes, clustering: Sequence[bytes | None]) -> list[object]:
        """The key columns. Rows of one partition are asked for one after another. Raises DecodeError."""
        last_key, partition = self._last
        if not self._any or last_key != key:
            parts = split_key(self._key_types, key)
            partition = [value.of(data) for value, data in zip(self._partition, parts, strict=True)]
            self._last = (key, partition)
            self._any = True
        if not self._clustering:
            return partition.copy()
        clustering_values = [
            None if data is None else value.of(data) for value, data in zip(self._clustering, clustering, strict=True)
        ]
        return partition + clustering_values


@dataclass(slots=True, init=False)
class RowUpdate:
    """A stored row that merging changed: `row` is None where nothing is left, `values` where it is not visible."""

    row_key: RowKey
    clustering: Clustering
    row: StateTableRow | None
    values: list[object] | None

    def __init__(
        self, row_key: RowKey, clustering: Clustering, row: StateTableRow | None, values: list[object] | None
    ) -> None:
        self.row_key = row_key
        self.clustering = clustering
        self.row = row
        self.values = values


class RowBuilder:
    """Builds the rows of one table; `now`, in seconds since the epoch, is when they are looked at."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def insert(self, row_key: RowKey, changes: RowChanges, floor: Deletion | None, now: int | None) -> NewRow | None:
        """A row that is not stored yet; None where `floor`, the strongest deletion above it, leaves nothing.

        Raises DecodeError for values that are none of their types.
        """
        fast = fast_insert(changes, floor)
        if fast is not None and fast.change is not None:
            row = row_of(row_key, fast.newest, fast.encoded, fast.assignment)
            values = self._renderer.plain_values(fast.change, fast.newest)
        else:
            state, encoded = merge_row(None, changes, floor)
            if encoded is None:
                return None
            row, values = state_row(row_key, state, now, encoded), self._renderer.values(state, now)
        if values is None:
            return row, None
        return row, (*row_key, *self._renderer.keys(row_key[0], changes.clustering), *values)

    def update(self, rows: Iterable[RowMerge], now: int | None) -> list[RowUpdate]:
        """The stored rows that merging changes. Raises DecodeError."""
        updates: list[RowUpdate] = []
        for row_key, changes, stored, floor in rows:
            update = self._update(row_key, changes, stored, floor, now)
            if update is not None:
                updates.append(update)
        return updates

    def _update(
        self, row_key: RowKey, changes: RowChanges, stored: EncodedState, floor: Deletion | None, now: int | None
    ) -> RowUpdate | None:
        encoded, generation, stream_id = stored
        fast = fast_merge(changes, encoded, generation, stream_id, floor)
        if fast is UNCHANGED:
            return None
        if fast is not None and fast.cells is not None:
            row = row_of(row_key, fast.newest, fast.encoded, fast.assignment)
            return RowUpdate(row_key, changes.clustering, row, self._renderer.merged_values(fast.cells))
        state, merged = merge_row(stored, changes, floor)
        if merged is None:
            return None
        to_store = None if state.empty else state_row(row_key, state, now, merged)
        return RowUpdate(row_key, changes.clustering, to_store, self._renderer.values(state, now))


def new_rows(
    builder: RowBuilder, rows: Mapping[RowKey, RowChanges], keys: Iterable[RowKey], now: int | None
) -> dict[RowKey, NewRow]:
    """The rows under some of these keys, as they are where nothing is stored of them and no deletion covers them."""
    built: dict[RowKey, NewRow] = {}
    for row_key in keys:
        row = builder.insert(row_key, rows[row_key], None, now)
        if row is not None:
            built[row_key] = row
    return built
