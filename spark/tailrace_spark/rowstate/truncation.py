"""Truncations of a table: each host's record of its own, and the deletion of all rows that follows from them."""

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
    """The latest truncation that each host logged, sorted by host, of one table (one table id).

    Of equal ones of a host the one that was seen first. Two truncations in quick succession are told apart once all
    hosts have logged the second.
    """

    # TRUNCATE reaches all hosts, and each notes its own clock (SystemKeyspace.saveTruncationRecord). Their records come
    # in any order and more than once.

    latest: tuple[Truncation, ...] = ()

    def covering(self, ring_delay: float) -> Deletion | None:
        """The deletion of all of the table by its last truncation; None where there was none.

        Its time can only fall as more hosts log the truncation, until another one. So what it hides must not be erased
        before `erasing` allows it.
        """
        # The smallest time of all hosts: no write after the truncation is hidden. A host whose latest record is more
        # than `ring_delay` seconds older than the table's has not logged this truncation yet, or never will.
        last = self._last(ring_delay)
        return _deletion(min(truncation.written for truncation in last)) if last else None

    def erasing(self, now: int, ring_delay: float) -> Deletion | None:
        """The deletion of what may be erased at `now` (milliseconds); None where nothing may yet."""
        # `covering`, once its first record is a ring delay old: by then all hosts that are up have logged theirs.
        last = self._last(ring_delay)
        if not last or now < min(truncation.seen for truncation in last) + ring_delay * 1000:
            return None
        return _deletion(min(truncation.written for truncation in last))

    def floor(self, now: int | None, ring_delay: float, erased: Deletion | None = None) -> Deletion | None:
        """The truncation floor at a time, in seconds since the epoch; None is a time that never comes.

        It is the strongest of three deletions: the newest truncation less a ring delay, whatever other hosts still log;
        `erasing`; and what was `erased` before.
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
    """The truncation that a change records. Raises ValueError for another change, and for one without a source."""
    if change.op is not Op.TRUNCATE or change.deletion is None or change.source is None:
        raise ValueError(f"{change.table}: {change.op.value} is no truncation with a time and a source")
    return Truncation(change.table.id, change.source.host, change.deletion.written, change.source.seen)


def truncation_state(truncation: Truncation) -> TruncationState:
    """The state of a table with one truncation."""
    return TruncationState((truncation,))


def merge_truncations(first: TruncationState, second: TruncationState) -> TruncationState:
    """The truncations of both: commutative, associative, idempotent. Both must be of one table id."""
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
