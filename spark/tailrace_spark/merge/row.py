"""Merges one row: its stored state, the changes of a batch, and the deletions above it."""

from __future__ import annotations

from tailrace_schemas.change import Deletion
from tailrace_spark.merge.batch_changes import RowChanges
from tailrace_spark.merge.state_keys import ROW, STATIC
from tailrace_spark.merge.stored_row import EncodedState, StoredState, decode_stored
from tailrace_spark.rowstate.codec import encode_state
from tailrace_spark.rowstate.deletions import PartitionState
from tailrace_spark.rowstate.row import RowState


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
