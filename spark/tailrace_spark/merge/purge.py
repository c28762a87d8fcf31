"""Purging of stored states: what a purge horizon lets go of rows and of partitions' deletions."""

from __future__ import annotations

from tailrace_spark.merge.state_keys import ROW, STATIC
from tailrace_spark.merge.stored_row import EncodedState, decode_stored
from tailrace_spark.rowstate.codec import decode_deletion
from tailrace_spark.rowstate.purging import purge
from tailrace_spark.rowstate.row import RowState


def purge_stored(clustering: bytes, stored: EncodedState, horizon: int) -> tuple[RowState, int | None]:
    """What purging up to `horizon` leaves of a stored state, and the largest write time that went; None: none did.

    Times in microseconds. `clustering` is the state key. The deletion of a partition or range goes whole, which leaves
    an empty state. The caller has seen that the state came before the horizon too.
    """
    if clustering == STATIC or clustering >= ROW:
        state = decode_stored(*stored).state
        return state, purge(state, horizon)
    # A deletion is purged whole or not at all: it still covers all of its range, or nothing that may come needs it.
    written = decode_deletion(stored[0])[0].written
    return RowState(), written if written <= horizon else None
