"""Who shares one reading of topics: who may join it where it is, what each is given, and who is too slow. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, Self

from tailrace_common.backoff import Waits
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.job.execution import MANY_RECORDS
from tailrace_spark.job.offsets import Offsets, Plan

NEAR: Final = MANY_RECORDS
"""Records by which members may be apart when they meet: who has more to read is quicker alone."""

LEAST_SECONDS: Final = 2.0
"""Nobody is too slow who takes no longer for a batch."""
_TIMES_SLOWER: Final = 3.0
# While fewer than half are done, slowness may be the machine's.
_LEAST_SECONDS_OF_MANY: Final = 10.0
_TIMES_SLOWER_OF_MANY: Final = 10.0
_LEAST_SECONDS_OF_ALL: Final = 60.0
LONGEST_PAUSE_SECONDS: Final = 900.0
_WAITS: Final = Waits(30.0, LONGEST_PAUSE_SECONDS)
"""Who has been a member for so long is as good as new."""


def behind(offsets: Offsets, other_offsets: Offsets) -> int:
    """How many records of `other_offsets` were not read up to `offsets`; marks of transactions are counted."""
    return sum(max(0, end - offsets.get(partition, 0)) for partition, end in other_offsets.items())


def may_join(member: Offsets, reading: Offsets) -> bool:
    """Whether a reading that goes on at its offsets gives a member all that it lacks, and little that it has."""
    return not behind(member, reading) and behind(reading, member) <= NEAR


def common_start(members: Collection[Offsets]) -> dict[KafkaPartition, int]:
    """Where a reading has to begin, so that no member lacks anything: the least offset of each partition.

    A partition that one of the members does not know is read from its beginning, as topics are that appear later.
    """
    partitions = set.intersection(*(set(offsets) for offsets in members)) if members else set()
    return {partition: min(offsets[partition] for offsets in members) for partition in partitions}


def may_found(members: Collection[Offsets]) -> bool:
    """Whether a reading that is yet to begin may be one for these: none of them would wait long for the others."""
    start = common_start(members)
    return all(behind(start, offsets) <= NEAR for offsets in members)


def advanced(member: Offsets, plan: Plan) -> dict[KafkaPartition, int]:
    """The next offsets of a member once it has written its part of a batch. Raises ValueError for one with a gap."""
    if gap := behind(member, plan.start):
        raise ValueError(f"{gap} records before a shared batch were not read")
    return {**member, **{partition: max(end, member.get(partition, 0)) for partition, end in plan.end.items()}}


def without_read(pieces: Sequence[Piece], member: Offsets, plan: Plan) -> Sequence[Piece]:
    """The pieces of a batch without the records that a member has read."""
    firsts = {partition: offset for partition, offset in member.items() if offset > plan.start.get(partition, 0)}
    if not firsts:
        return pieces
    return [
        Piece(
            tuple(delivered for delivered in piece.changes if _is_unread(delivered.record_id.key, firsts)),
            tuple(letter for letter in piece.dead_letters if _is_unread(letter.record_id.key, firsts)),
        )
        for piece in pieces
    ]


def _is_unread(key: tuple[str, int, int], firsts: Mapping[KafkaPartition, int]) -> bool:
    topic, partition, offset = key
    return offset >= firsts.get((topic, partition), 0)


def patience(durations: Sequence[float], members: int, *, queued: bool) -> float | None:
    """Seconds after which members that still write a batch are left behind; None: they are waited for.

    `durations` are the seconds of those of the members that are done. `queued`: others wait for the next batch. Where
    processors are scarce all are slow: so half of the members say best what a batch takes.
    """
    if not durations:
        return _LEAST_SECONDS_OF_ALL if queued else None
    if 2 * len(durations) < members:
        return max(_LEAST_SECONDS_OF_MANY, _TIMES_SLOWER_OF_MANY * min(durations))
    return max(LEAST_SECONDS, _TIMES_SLOWER * median(durations))


@dataclass(frozen=True, slots=True)
class Standing:
    """How often a subscription has left a reading because it failed or was slow, and when it may join again."""

    faults: int = 0
    not_before: float = 0.0

    def at_fault(self, now: float) -> Self:
        """Another time: it stays alone for 30 s, twice as long each time, 15 minutes at most."""
        faults = self.faults + 1
        return replace(self, faults=faults, not_before=now + _WAITS.after(faults))

    def may_join(self, now: float) -> bool:
        """Whether its time alone is over."""
        return now >= self.not_before
