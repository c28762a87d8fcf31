"""What a batch's truncations of a table erase: the one rule of all stores."""

from __future__ import annotations

from tailrace_schemas.change import Deletion
from tailrace_spark.rowstate.deletions import supersedes
from tailrace_spark.rowstate.truncation import TruncationState, merge_truncations


def absorb_truncations(
    stored: TruncationState, new: TruncationState, erased: Deletion | None, now: int | None, ring_delay: float
) -> tuple[TruncationState, Deletion | None]:
    """The truncations to store, and the floor up to which the whole table is now to be erased; None: no further.

    A truncation covers everything older than its latest time by a ring delay, whatever further hosts report of it.
    From a ring delay after its first record on, it covers everything older than its earliest time.
    `erased` is the former floor, `now` in seconds since the epoch (None: a time that never comes), `ring_delay` in
    seconds.
    """
    # Each node truncates at a moment of its own (TruncateVerbHandler), within a ring delay of the others. A write
    # between two of these moments is gone on one node and kept on the other, so only what is older than all of them may
    # be erased. Until every host can have reported, the latest report less a ring delay is a safe bound of them.
    truncations = merge_truncations(stored, new)
    floor = truncations.floor(now, ring_delay, erased)
    if floor is None or (erased is not None and not supersedes(floor, erased)):
        return truncations, None
    return truncations, floor
