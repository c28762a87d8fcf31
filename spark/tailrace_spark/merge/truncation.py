"""What a batch's truncations of a table take: of the batch, and of all that is stored. The one rule of all stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace_schemas.change import Deletion, Op
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.rowstate.truncation import TruncationState, absorb, truncation_of


@dataclass(frozen=True, slots=True)
class TruncatedBatch:
    """Changes of one table that no truncation took, and the truncations to store.

    `erased` is the deletion of what is stored of the table so far; None: it stays. `left`: changes to merge, in order.
    """

    truncations: TruncationState
    erased: Deletion | None
    left: Sequence[Delivered]


def truncate_batch(stored: TruncationState, changes: Sequence[Delivered], ring_delay: float) -> TruncatedBatch:
    """Take a batch's truncations out of its changes, and what they, or those that are `stored`, took.

    `changes` are of one table id, those of each Kafka partition in order; `ring_delay` in seconds. The caller stores
    the truncations and erases in one step, before it merges: nothing that is merged later may be erased by them again.
    """
    # All of the batch's truncations first: a change of one host may stand before the record of another host's.
    new = [
        truncation_of(delivered.change)
        for delivered in changes
        if delivered.change.op is Op.TRUNCATE and _is_told(delivered)
    ]
    if not new and not stored.statements:
        return TruncatedBatch(stored, None, changes)
    truncations, erased = absorb(stored, new, ring_delay)
    # By position (CommitLogPosition), as a node replays its log (CommitLogReplayer.ReplayFilter): a write that one
    # replica has from before its truncation and another one from behind it is covered once and left once.
    remaining = [
        delivered
        for delivered in changes
        if not (delivered.change.op is Op.TRUNCATE and _is_told(delivered))
        and not truncations.covers(delivered.change, ring_delay)
    ]
    return TruncatedBatch(truncations, erased, remaining)


def _is_told(truncation: Delivered) -> bool:
    """Whether a truncation says whose it is, and of when; merging refuses others."""
    return truncation.change.source is not None and truncation.change.deletion is not None
