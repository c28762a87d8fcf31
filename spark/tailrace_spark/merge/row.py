"""Merges one row: its stored state, the changes of a batch, the deletions above it; as bytes where all of that is
plain.

Bytes are merged where a batch has one change of a row, and both the change and the stored state are plain. Plain are
live cells of simple columns, without TTL. Everything else is merged as states, which gives the same bytes.

A row is asked for as the store has it: the values that its state shows, a plain change alone, or cells merged as bytes.
A row that is not shown is stored all the same. This module is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailrace_schemas.change import Change, Deletion
from tailrace_schemas.cql.coding import Codec
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import TruncatedError
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Column, Table
from tailrace_spark.merge.batch_changes import RowChanges
from tailrace_spark.merge.condition import RowFilters, RowPredicate, predicate_of
from tailrace_spark.merge.stored_row import ROW, STATIC, EncodedState, StoredState, assignment_of, decode_stored
from tailrace_spark.rowstate.codec import encode_state
from tailrace_spark.rowstate.deletions import PartitionState
from tailrace_spark.rowstate.plain import PlainRow, plain_merge, plain_newest, plain_state, plain_time
from tailrace_spark.rowstate.row import RowState

_LONG_AGO: Final = -(2**63) - 1


def covering(partition: PartitionState | None, clustering: bytes) -> Deletion | None:
    """The strongest deletion above a row: its partition's, or a range's.

    `clustering` is the row's state key, STATIC for the static row.
    """
    return None if partition is None else partition.covering(None if clustering == STATIC else clustering[len(ROW) :])


def merge_state(stored: StoredState | None, new: RowState | None, floor: Deletion | None) -> RowState:
    """The state of a row after a batch, without what `floor` covers. Takes both states for itself."""
    if stored is None:
        state = RowState() if new is None else new
    else:
        state = stored.state
        if new is not None:
            state.absorb(new)
    # Deletions come last: of a write and a deletion of one time the deletion wins (DeletionTime.deletes, <=).
    if floor is not None:
        state.shadow(floor)
    return state


def differs(stored: StoredState | None, state: RowState) -> bool:
    """Whether a state is another one than the stored one; of a row that is not stored, whether there is any."""
    return (not state.empty) if stored is None else stored.differs(state)


def merge_row(
    encoded: EncodedState | None, changes: RowChanges | None, floor: Deletion | None
) -> tuple[RowState, bytes | None]:
    """The state of a row after a batch, and its bytes; None where they are the stored ones.

    Raises DecodeError for stored bytes that no version wrote.
    """
    stored = None if encoded is None else decode_stored(*encoded)
    state = merge_state(stored, None if changes is None else changes.state, floor)
    if stored is None:
        return state, None if state.empty else encode_state(state)
    merged = encode_state(state)
    # States have one encoding, so equal bytes are equal states; the assignment stands in columns of its own.
    unchanged = merged == stored.encoded and state.assignment == stored.assignment
    return state, None if unchanged else merged


class FastRow:
    """A row to be stored: its encoded state, the newest write time in it, and the assignment of that write.

    Its cells are those of `cells`; without it, those of `change`, all written at `newest`.
    """

    def __init__(
        self, newest: int, encoded: bytes, assignment: Assignment | None, change: Change | None, cells: PlainRow | None
    ) -> None:
        self.newest = newest
        self.encoded = encoded
        self.assignment = assignment
        self.change = change
        self.cells = cells


UNCHANGED: Final = FastRow(0, b"", None, None, None)
"""The stored row stays as it is: a redelivery, or older writes."""


def fast_insert(changes: RowChanges, floor: Deletion | None) -> FastRow | None:
    """A row that is not stored yet; None: not for the fast path. `floor` is the strongest deletion above it."""
    # Nothing is stored, so the encoding of the one change is the row's state.
    delivered = changes.single
    plain = None if delivered is None else plain_state(delivered.change)
    if delivered is None or plain is None or (floor is not None and plain[0] <= floor.written):
        return None
    return FastRow(plain[0], plain[1], delivered.assignment, delivered.change, None)


def fast_merge(
    changes: RowChanges, encoded: bytes, generation: int | None, stream_id: bytes | None, floor: Deletion | None
) -> FastRow | None:
    """A stored row with a batch's change of it; None: not for the fast path. `floor` as in `fast_insert`.

    What is stored must hold nothing that `floor` covers.
    """
    delivered = changes.single
    if delivered is None:
        return None
    change, assignment = delivered.change, delivered.assignment
    written = plain_time(change)
    if written is None or (floor is not None and written <= floor.written):
        return None
    # A shadowed change must not take this way: what is left of it is not what it says (DeletionTime.deletes).
    same_assignment = _equals(assignment, generation, stream_id)
    # Redelivery is the usual case with several replicas, and comparing bytes is the cheapest test for it.
    try:
        newest = plain_newest(encoded)
        if same_assignment and newest == written and _is_state_of(change, encoded):
            return UNCHANGED
        merged = plain_merge(encoded, change, written)
    except TruncatedError:
        return None  # merge.row reports the damaged bytes
    if merged is None:
        return None
    # The stream id of a row is that of its newest write; equal times fall to the larger assignment, in every store
    # and in any order of delivery (RowState.newest).
    if not same_assignment and not (
        newest < written or (newest == written and _wins(assignment, generation, stream_id))
    ):
        assignment, same_assignment = assignment_of(generation, stream_id), True
    if same_assignment and merged.encoded == encoded:
        return UNCHANGED
    return FastRow(merged.newest, merged.encoded, assignment, None, merged)


def is_redelivery(
    changes: RowChanges, encoded: bytes, generation: int | None, stream_id: bytes | None, floor: Deletion | None
) -> bool:
    """Whether a stored row is just what a batch's one change of it makes: the change comes again, as from a replica.

    `floor` as in `fast_insert`. False where that takes row states to tell.
    """
    delivered = changes.single
    if delivered is None or not _equals(delivered.assignment, generation, stream_id):
        return False
    written = plain_time(delivered.change)
    if written is None or (floor is not None and written <= floor.written):
        return False
    try:
        return plain_newest(encoded) == written and _is_state_of(delivered.change, encoded)
    except TruncatedError:
        return False


def merges_fast(table: Table) -> bool:
    """Whether rows of a table may take the fast path where whole partitions are shown by several rows' states.

    So not with static columns, which all rows of a partition show, nor with counters.
    """
    return not table.static and all(column.type.kind != "counter" for column in table.regular)


def _is_state_of(change: Change, encoded: bytes) -> bool:
    plain = plain_state(change)
    return plain is not None and plain[1] == encoded


def _equals(assignment: Assignment | None, generation: int | None, stream_id: bytes | None) -> bool:
    """Whether these columns hold this assignment; where one of them is null, they hold none."""
    if assignment is None:
        return generation is None or stream_id is None
    return generation is not None and assignment[0] == generation and assignment[1] == stream_id


def _wins(assignment: Assignment | None, generation: int | None, stream_id: bytes | None) -> bool:
    """Whether an assignment is larger than that of these columns; none is less than any (RowState.newest)."""
    if assignment is None:
        return False
    return generation is None or stream_id is None or (assignment[0], assignment[1]) > (generation, stream_id)


class _AskedColumn:
    """A column that the filter asks for: its place among what it asks for, and when its name was last dropped."""

    def __init__(self, slot: int, column: Column, dropped_at: int) -> None:
        self.slot = slot
        self.dropped_at = dropped_at
        self.codec: Codec = codec(column.type)


class ShownRows:
    """The filter of a table's rows, by one definition of it."""

    def __init__(self, predicate: RowPredicate, table: Table) -> None:
        indexes = {column.name: index for index, column in enumerate(table.regular)}
        dropped = {drop.column.name_bytes: drop.dropped_at for drop in table.dropped}
        self._predicate = predicate
        self._indexes: list[int] = [indexes[column.name] for column in predicate.columns]
        self._asked: dict[bytes, _AskedColumn] = {
            column.name_bytes: _AskedColumn(slot, column, dropped.get(column.name_bytes, _LONG_AGO))
            for slot, column in enumerate(predicate.columns)
        }

    def shows(self, values: Sequence[object]) -> bool:
        """Whether readers see a row whose regular columns, in their order, have these values."""
        return self._predicate.holds([values[index] for index in self._indexes])

    def shows_change(self, change: Change, written: int) -> bool:
        """The same of a row that a plain change (rowstate.plain), written at `written`, makes alone."""
        values: list[object] = [None] * len(self._indexes)
        for cell in change.cells:
            if cell.value is not None:
                self._put(values, cell.column.name_bytes, written, cell.value)
        return self._predicate.holds(values)

    def shows_cells(self, row: PlainRow) -> bool:
        """The same of a row that was merged as bytes."""
        values: list[object] = [None] * len(self._indexes)
        for index in range(len(row.names)):
            self._put(values, row.names[index], row.times[index], row.values[index])
        return self._predicate.holds(values)

    def _put(self, values: list[object], name: bytes, written: int, value: bytes) -> None:
        column = self._asked.get(name)
        # A cell from before its column was last dropped is no data of it.
        if column is not None and written > column.dropped_at:
            values[column.slot] = column.codec.decode(value)


def shown_rows(filters: RowFilters, table: Table) -> ShownRows | None:
    """Which rows of a table are shown; None: all. Raises SettingsError where a filter does not fit the definition."""
    predicate = predicate_of(filters, table)
    return None if predicate is None else ShownRows(predicate, table)
