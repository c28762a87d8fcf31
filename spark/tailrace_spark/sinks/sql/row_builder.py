"""Builds the rows of both of a table's own tables: new rows, and rows that merging changed. It asks and writes nothing.

It is all that is computed for each row, so it is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace_schemas.change import Deletion
from tailrace_spark.merge.batch_changes import Clustering, RowChanges
from tailrace_spark.merge.fast import UNCHANGED, fast_insert, fast_merge
from tailrace_spark.merge.row import merge_row
from tailrace_spark.merge.stored_row import EncodedState, RowKey, StateTableRow, row_of, state_row
from tailrace_spark.sinks.sql.render import Renderer

VisibleRow = tuple[object, ...]
"""A row of NAME__rows, in the order of VisibleTable.names."""
NewRow = tuple[StateTableRow, VisibleRow | None]
"""A row that is not stored yet: of the state table, and its visible row where SELECT returns one."""
RowMerge = tuple[RowKey, RowChanges, EncodedState, Deletion | None]
"""A stored row and its changes: its key, the changes, what is stored, and the strongest deletion above it."""


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
