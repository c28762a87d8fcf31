"""A row of a state table: its columns as they are there, and the state that they stand for."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace_schemas.streams import Assignment
from tailrace_spark.rowstate.codec import decode_state, encode_state, newest
from tailrace_spark.rowstate.purging import deletes_from
from tailrace_spark.rowstate.row import RowState

RowKey = tuple[bytes, bytes]
"""(partition key, clustering value of the state table)."""
EncodedState = tuple[bytes, int | None, bytes | None]
"""(state, generation, stream id), as they are there."""
StateTableRow = tuple[bytes, bytes, int, bytes, int | None, bytes | None, int | None, int | None]
"""One row of the state table: its columns, in order."""


@dataclass(slots=True, init=False)
class StoredState:
    """One row of the state table: its bytes and assignment, as they are there, tell whether merging changed anything.

    Merging takes `state` for itself. The `__init__` is its own so that it is compiled.
    """

    state: RowState
    encoded: bytes
    assignment: Assignment | None

    def __init__(self, state: RowState, encoded: bytes, assignment: Assignment | None) -> None:
        self.state = state
        self.encoded = encoded
        self.assignment = assignment

    def differs(self, state: RowState) -> bool:
        """Whether another state than this one is in the table."""
        return state.assignment != self.assignment or encode_state(state) != self.encoded


def decode_stored(encoded: bytes, generation: int | None, stream_id: bytes | None) -> StoredState:
    """What these columns stand for. Raises DecodeError for bytes that no version wrote."""
    state, assignment = decode_state(encoded), assignment_of(generation, stream_id)
    state.assign(assignment)
    return StoredState(state, encoded, assignment)


def assignment_of(generation: int | None, stream_id: bytes | None) -> Assignment | None:
    """What these columns say; None where it is not known."""
    return None if generation is None or stream_id is None else Assignment(generation, stream_id)


def row_of(
    row_key: RowKey,
    newest: int,
    state: bytes,
    assignment: Assignment | None,
    expiry: int | None = None,
    deletes: int | None = None,
) -> StateTableRow:
    """The columns of one row; see `sinks.state_store.tables` for what they say."""
    # Spelled out: mypyc makes this tuple without a loop, once for each row of a batch.
    if assignment is None:
        return row_key[0], row_key[1], newest, state, None, None, expiry, deletes
    return row_key[0], row_key[1], newest, state, assignment[0], assignment[1], expiry, deletes


def state_row(
    row_key: RowKey, state: RowState, now: int | None, encoded: bytes | None = None, arrived: int | None = None
) -> StateTableRow:
    """The row of a state that is not empty, and that was looked at at a time, in seconds since the epoch.

    `arrived` is when the last of it came, where that was not then.
    """
    evaluated = -1 if now is None else now
    expiry, deletes = state.next_expiry(after=evaluated), deletes_from(state)
    # A tombstone is purged once its write time and its arrival are both before the horizon (reference/merging.md,
    # "Purging"), so the later of the two counts.
    if deletes is not None:
        deletes = max(deletes, evaluated if arrived is None else arrived)
    return row_of(row_key, newest(state), encoded or encode_state(state), state.assignment, expiry, deletes)
