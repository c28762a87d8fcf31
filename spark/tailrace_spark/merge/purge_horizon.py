"""Changes that come too late: what would hold them back was forgotten (docs/contracts.md section 6)."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace_schemas.change import Change, Op, Origin, record_times
from tailrace_spark.batch.delivery import DeadLetter, Delivered


def split(changes: Sequence[Delivered], purged_to: int | None) -> tuple[Sequence[Delivered], list[DeadLetter]]:
    """Changes of one table that may be merged, and those that come too late.

    `purged_to` is the largest write time, in microseconds, of what was purged of the table; None: nothing was.
    """
    if purged_to is None or not any(late(delivered.change, purged_to) for delivered in changes):
        return changes, []
    reason = f"written at or before {purged_to}, up to which deletions are forgotten: see merge_horizon_seconds"
    in_time = [delivered for delivered in changes if not late(delivered.change, purged_to)]
    return in_time, [
        DeadLetter(delivered.record_id, reason, delivered.message)
        for delivered in changes
        if late(delivered.change, purged_to)
    ]


def late(change: Change, purged_to: int) -> bool:
    """Whether a change of the log is as old as what was purged. Snapshot rows are never late."""
    # A snapshot reads what Cassandra has now: the deletions that it met are in the answer already.
    if change.op in (Op.READ, Op.TRUNCATE):
        return False
    if change.source is not None and change.source.origin is Origin.SNAPSHOT:
        return False
    # By the record's time (docs/contracts.md 3), so that a change is judged alike by all stores, decoded or not.
    return record_times(change)[0] <= purged_to
