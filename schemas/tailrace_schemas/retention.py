"""Which old generations may go: those of which no table keeps a change any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def keep_from(timestamps: Sequence[int], now_ms: int, retentions_ms: Iterable[int | None]) -> int | None:
    """The timestamp of the oldest generation to keep; None where all are kept.

    `timestamps` (milliseconds) ascend. A generation may go when its successor operates, and every change of its time is
    older than every table's retention (stream-ids.md 3: finished). Of `retentions_ms`, None is for a table that keeps
    its changes for ever. So the one that operated at now - the longest retention stays, with all later ones. Where
    nothing is known of any table, none goes.
    """
    longest = 0
    any_known = False
    for retention in retentions_ms:
        if retention is None:
            return None
        longest, any_known = max(longest, retention), True
    if not any_known:
        return None
    finished = [timestamp for timestamp in timestamps[1:] if timestamp <= now_ms - longest]
    return finished[-1] if finished else None
