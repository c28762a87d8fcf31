"""Rows as both of a table's own tables take them: new ones, and ones that merging changed; nothing is asked or written.

It is all that is computed for each row, so it is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace_schemas.change import Deletion
from tailrace_schemas.cql.vint import read_signed
from tailrace_spark.merge.batch_changes import Clustering, RowChanges
from tailrace_spark.merge.stored_row import Encoded, RowKey, StateRow, assignment_of, row_of, state_row, stored_as
from tailrace_spark.rowstate.codec import encode_state
from tailrace_spark.rowstate.plain import plain_state
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.sql.render import Renderer

Shown = tuple[object, ...]
"""A row of NAME__rows, in the order of ShownTable.names."""
New = tuple[StateRow, Shown | None]
"""A row of which nothing is known yet: in the state table, and what is shown of it if it is shown."""


@dataclass(slots=True, init=False)
class Changed:
    """A row that merging changed: `row` is None where nothing is left of it, `values` where it is not shown."""

    row_key: RowKey
    clustering: Clustering
    row: StateRow | None
    values: list[object] | None

    def __init__(
        self, row_key: RowKey, clustering: Clustering, row: StateRow | None, values: list[object] | None
    ) -> None:
        self.row_key = row_key
        self.clustering = clustering
        self.row = row
        self.values = values


class RowMaker:
    """Makes the rows of one table; `at`, in seconds since the epoch, is when they are looked at."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def new(self, row_key: RowKey, said: RowChanges, at: int | None) -> New:
        """A row of which nothing else is known. Raises DecodeError for values that are none of their types."""
        alone = said.alone
        plain = None if alone is None else plain_state(alone.change)
        if alone is None or plain is None:
            state = said.state
            row, values = state_row(row_key, state, at), self._renderer.values(state, at)
        else:
            row = row_of(row_key, plain[0], plain[1], alone.assignment)
            values = self._renderer.plain_values(alone.change, plain[0])
        if values is None:
            return row, None
        return row, (*row_key, *self._renderer.keys(row_key[0], said.clustering), *values)

    def changed(
        self, rows: Iterable[tuple[RowKey, RowChanges, Encoded, Deletion | None]], at: int | None
    ) -> list[Changed]:
        """What merging changes of rows that are there, less what a deletion covers. Raises DecodeError."""
        found: list[Changed] = []
        for row_key, said, known, covering in rows:
            changed = self._merged(row_key, said, known, covering, at)
            if changed is not None:
                found.append(changed)
        return found

    def _merged(
        self, row_key: RowKey, said: RowChanges, known: Encoded, covering: Deletion | None, at: int | None
    ) -> Changed | None:
        encoded, generation, stream_id = known
        if covering is None and _is_said(said, encoded, generation, stream_id):
            return None
        stored = stored_as(encoded, generation, stream_id)
        state: RowState = stored.state
        said.merge_into(state)
        if covering is not None:
            state.shadow(covering)
        now = encode_state(state)
        if now == encoded and state.assignment == stored.assignment:
            return None
        row = None if state.empty else state_row(row_key, state, at, now)
        return Changed(row_key, said.clustering, row, self._renderer.values(state, at))


def _is_said(said: RowChanges, encoded: bytes, generation: int | None, stream_id: bytes | None) -> bool:
    """Whether one plain change says just what is there: it comes again."""
    alone = said.alone
    if alone is None:
        return False
    change, assignment = alone.change, alone.assignment
    if assignment_of(generation, stream_id) != assignment:
        return False
    if change.marker is not None:
        written = change.marker.written
    elif change.cells:
        written = change.cells[0].written
    else:
        return False
    if read_signed(encoded, 2)[0] != written:
        return False
    plain = plain_state(change)
    return plain is not None and plain[1] == encoded


def new_rows(
    maker: RowMaker, rows: Mapping[RowKey, RowChanges], keys: Iterable[RowKey], at: int | None
) -> dict[RowKey, New]:
    """The rows under some of these keys, as they are where nothing else is known of them."""
    return {row_key: maker.new(row_key, rows[row_key], at) for row_key in keys}
