"""Truncations of a table: what each host said of its own, and what follows for all of the table's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_spark.rowstate.deletions import stronger

_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Truncation:
    """One host's record of a truncation: `written`, its truncated_at, in microseconds; `seen` when, in milliseconds.

    `seen` is the clock of the agent that read it, or another that a sink keeps to (contracts.md section 3).
    """

    table_id: UUID
    host: str
    written: int
    seen: int


@dataclass(frozen=True, slots=True)
class TruncationState:
    """The latest truncation that each host told of, by host and sorted, of one table (one table id).

    A truncation reaches all hosts, each notes a time of its own, and their records come in any order and often: the
    latest of each host is kept, of equal ones the one that was seen first. So two truncations in quick succession
    are told apart once all hosts have told of the second.
    """

    latest: tuple[Truncation, ...] = ()

    def covering(self, ring_delay: float) -> Deletion | None:
        """What hides rows: the table's last truncation, as a deletion of all of it; None where there was none.

        Its time is the smallest that a host noted of it: nothing that was written behind the truncation is hidden.
        Hosts whose latest one is more than `ring_delay` seconds before the table's have not told of that one (or
        never will). As more hosts tell of it the time can only fall, until another truncation: what it hides must
        not be erased before `erasing` says so.
        """
        last = self._last(ring_delay)
        return _deletion(min(truncation.written for truncation in last)) if last else None

    def erasing(self, now: int, ring_delay: float) -> Deletion | None:
        """What may be erased at `now` (milliseconds): `covering` once its first record is `ring_delay` seconds old."""
        last = self._last(ring_delay)
        if not last or now < min(truncation.seen for truncation in last) + ring_delay * 1000:
            return None
        return _deletion(min(truncation.written for truncation in last))

    def floor(self, now: int | None, ring_delay: float, erased: Deletion | None = None) -> Deletion | None:
        """What is covered for certain at a time, in seconds since the epoch; None is a time that never comes.

        That is what is older than the newest truncation by a ring delay, whatever other hosts still tell, what
        `erasing` says, and what was `erased` before.
        """
        newest = max((truncation.written for truncation in self.latest), default=None)
        if newest is None:
            return erased
        certain = _deletion(newest - int(ring_delay * _MICROS))
        due = None if now is None else self.erasing(now * 1000, ring_delay)
        return stronger(stronger(certain, due), erased)

    def _last(self, ring_delay: float) -> list[Truncation]:
        newest = max((truncation.written for truncation in self.latest), default=0)
        return [truncation for truncation in self.latest if truncation.written >= newest - ring_delay * _MICROS]


def truncation_of(change: Change) -> Truncation:
    """What a truncate change says. Raises ValueError for another change, and for one without a source."""
    if change.op is not Op.TRUNCATE or change.deletion is None or change.source is None:
        raise ValueError(f"{change.table}: {change.op.value} is no truncation with a time and a source")
    return Truncation(change.table.id, change.source.host, change.deletion.written, change.source.seen)


def truncated(truncation: Truncation) -> TruncationState:
    """The state of a table of which this is all that is known."""
    return TruncationState((truncation,))


def merge_truncations(first: TruncationState, second: TruncationState) -> TruncationState:
    """What both say together: commutative, associative, idempotent. Both must be of one table id."""
    latest: dict[str, Truncation] = {}
    for truncation in (*first.latest, *second.latest):
        existing = latest.get(truncation.host)
        if existing is None or (truncation.written, -truncation.seen) > (existing.written, -existing.seen):
            latest[truncation.host] = truncation
    if len({truncation.table_id for truncation in latest.values()}) > 1:
        raise ValueError("truncations of two tables: a table id has a state of its own")
    return TruncationState(tuple([latest[host] for host in sorted(latest)]))


def _deletion(written: int) -> Deletion:
    return Deletion(written, written // _MICROS)
