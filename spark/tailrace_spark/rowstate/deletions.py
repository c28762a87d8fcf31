"""Deletions of one partition beside its rows' own: of all of it, and of ranges, merged as Cassandra merges them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from tailrace_schemas.change import Deletion
from tailrace_schemas.streams import Assignment


def supersedes(deletion: Deletion, other: Deletion) -> bool:
    """Whether `deletion` is the stronger one: later written, then later local time (DeletionTime.supersedes)."""
    # The local time decides nothing about data. It makes two deletions of one microsecond the same on every replica.
    return (deletion.written, deletion.local) > (other.written, other.local)


def stronger(first: Deletion | None, second: Deletion | None) -> Deletion | None:
    """The one of two deletions that holds; None deletes nothing."""
    if first is None:
        return second
    if second is None or not supersedes(second, first):
        return first
    return second


@dataclass(frozen=True, slots=True)
class RangeDeletion:
    """Rows with start <= clustering bytes < end are deleted. Order-preserving bytes; an `end` of None is open.

    `assignment` is that of the change which deleted them, None where it is not known.
    """

    start: bytes
    end: bytes | None
    deletion: Deletion
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The deletion of a partition and those of ranges in it.

    `ranges` are in the one form that `flatten` gives: sorted, not overlapping, neighbours of one deletion joined. What
    the partition's own deletion covers is left out. So states with the same meaning are equal. `assignment` is that of
    the change which deleted the partition; of several that deleted it alike, the greatest.
    """

    deletion: Deletion | None = None
    ranges: tuple[RangeDeletion, ...] = ()
    assignment: Assignment | None = None

    def covering(self, clustering: bytes | None) -> Deletion | None:
        """The strongest deletion that covers a row, by its order-preserving clustering bytes; None: the static row."""
        if clustering is None:
            return self.deletion
        index = bisect_right(self.ranges, clustering, key=_start) - 1
        if index >= 0:
            candidate = self.ranges[index]
            if candidate.end is None or clustering < candidate.end:
                return candidate.deletion  # flatten keeps only ranges that supersede the partition's deletion
        return self.deletion


NOTHING_DELETED: Final = PartitionState()


def merge_partitions(first: PartitionState, second: PartitionState) -> PartitionState:
    """The deletions of both: commutative, associative, idempotent."""
    strongest = max(first, second, key=_strength)
    ranges = flatten((*first.ranges, *second.ranges), strongest.deletion)
    return PartitionState(strongest.deletion, ranges, strongest.assignment)


def truncate_deletions(partition: PartitionState, truncation: Deletion | None) -> PartitionState:
    """A partition's deletions without those that a truncation of the whole table covers."""
    if truncation is None:
        return partition
    covered = partition.deletion is not None and not supersedes(partition.deletion, truncation)
    remaining = NOTHING_DELETED if covered else partition
    ranges = flatten(partition.ranges, stronger(remaining.deletion, truncation))
    return PartitionState(remaining.deletion, ranges, remaining.assignment)


def flatten(ranges: Iterable[RangeDeletion], floor: Deletion | None = None) -> tuple[RangeDeletion, ...]:
    """Any range deletions, overlapping or not, in their one form: at each place the strongest, joined where equal.

    Of equal deletions the one with the greatest assignment. Ranges that do not supersede `floor`, the partition's
    deletion, and empty ones are left out.
    """
    # RangeTombstoneList keeps the same, but does not join equal neighbours. Joined, states are the same bytes in
    # whatever order their ranges arrived.
    effective = [
        candidate
        for candidate in ranges
        if (candidate.end is None or candidate.start < candidate.end)
        and (floor is None or supersedes(candidate.deletion, floor))
    ]
    effective.sort(key=_start)
    points = sorted(
        {candidate.start for candidate in effective}
        | {candidate.end for candidate in effective if candidate.end is not None}
    )
    flat: list[RangeDeletion] = []
    # A sweep over the ends: the heap has the ranges that have begun. One that has ended goes only when it comes to the
    # top, which keeps each step logarithmic.
    active: list[tuple[int, int]] = []  # (rank by strength, index into effective), the strongest first
    ranks = _ranks(effective)
    next_range = 0
    for index, point in enumerate(points):
        while next_range < len(effective) and effective[next_range].start == point:
            heappush(active, (ranks[next_range], next_range))
            next_range += 1
        while active and _ends_by(effective[active[0][1]].end, point):
            heappop(active)
        if active:
            end = points[index + 1] if index + 1 < len(points) else None
            strongest = effective[active[0][1]]
            _extend(flat, RangeDeletion(point, end, strongest.deletion, strongest.assignment))
    return tuple(flat)


def _strength(part: RangeDeletion | PartitionState) -> tuple[int, int, tuple[object, ...]] | tuple[()]:
    """The order of `supersedes`, then of assignments: none is less than any."""
    # The assignment only has to be one answer of all replicas, so that stored rows are equal byte for byte.
    if part.deletion is None:
        return ()
    return part.deletion.written, part.deletion.local, part.assignment or ()


def _ranks(ranges: list[RangeDeletion]) -> list[int]:
    """The rank of each range by its strength; 0 is the strongest."""
    ranks = [0] * len(ranges)
    for rank, index in enumerate(sorted(range(len(ranges)), key=lambda index: _strength(ranges[index]), reverse=True)):
        ranks[index] = rank
    return ranks


def _start(part: RangeDeletion) -> bytes:
    return part.start


def _ends_by(end: bytes | None, point: bytes) -> bool:
    return end is not None and end <= point


def _extend(flat: list[RangeDeletion], following: RangeDeletion) -> None:
    """Append `part`, joined with the last one where they touch and say the same."""
    if flat and flat[-1].end == following.start and _strength(flat[-1]) == _strength(following):
        following = RangeDeletion(flat.pop().start, following.end, following.deletion, following.assignment)
    flat.append(following)
