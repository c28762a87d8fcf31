"""What is deleted in one partition beside its rows' own deletions: all of it, and ranges, merged as Cassandra does."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from tailrace_schemas.change import Deletion


def supersedes(deletion: Deletion, other: Deletion) -> bool:
    """Whether `deletion` is the stronger one: later written, then later local time (DeletionTime.supersedes)."""
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
    """Rows with start <= clustering bytes < end are deleted. Order-preserving bytes; an `end` of None is open."""

    start: bytes
    end: bytes | None
    deletion: Deletion


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The deletion of a partition and those of ranges in it.

    `ranges` are in the one form that `flatten` gives: sorted, not overlapping, neighbours of one deletion joined, and
    only what the partition's own deletion does not cover. So states that say the same are equal.
    """

    deletion: Deletion | None = None
    ranges: tuple[RangeDeletion, ...] = ()

    def covering(self, clustering: bytes | None) -> Deletion | None:
        """The strongest deletion that covers a row, by its order-preserving clustering bytes; None: the static row."""
        if clustering is None:
            return self.deletion
        at = bisect_right(self.ranges, clustering, key=_start) - 1
        if at >= 0:
            part = self.ranges[at]
            if part.end is None or clustering < part.end:
                return part.deletion  # flatten keeps only ranges that supersede the partition's deletion
        return self.deletion


NOTHING_DELETED: Final = PartitionState()


def merge_partitions(first: PartitionState, second: PartitionState) -> PartitionState:
    """What both say together: commutative, associative, idempotent."""
    deletion = stronger(first.deletion, second.deletion)
    return PartitionState(deletion, flatten((*first.ranges, *second.ranges), deletion))


def flatten(ranges: Iterable[RangeDeletion], floor: Deletion | None = None) -> tuple[RangeDeletion, ...]:
    """Any range deletions, overlapping or not, in their one form: at each place the strongest, joined where equal.

    Ranges that do not supersede `floor`, the partition's deletion, and empty ones are left out. It is what
    Cassandra's RangeTombstoneList keeps, with neighbours joined.
    """
    kept = [
        part
        for part in ranges
        if (part.end is None or part.start < part.end) and (floor is None or supersedes(part.deletion, floor))
    ]
    kept.sort(key=_start)
    points = sorted({part.start for part in kept} | {part.end for part in kept if part.end is not None})
    flat: list[RangeDeletion] = []
    active: list[tuple[int, int, int]] = []  # (-written, -local, index into kept), the strongest first
    next_range = 0
    for index, point in enumerate(points):
        while next_range < len(kept) and kept[next_range].start == point:
            part = kept[next_range]
            heappush(active, (-part.deletion.written, -part.deletion.local, next_range))
            next_range += 1
        while active and _ends_by(kept[active[0][2]].end, point):
            heappop(active)
        if active:
            end = points[index + 1] if index + 1 < len(points) else None
            _extend(flat, RangeDeletion(point, end, kept[active[0][2]].deletion))
    return tuple(flat)


def _start(part: RangeDeletion) -> bytes:
    return part.start


def _ends_by(end: bytes | None, point: bytes) -> bool:
    return end is not None and end <= point


def _extend(flat: list[RangeDeletion], part: RangeDeletion) -> None:
    """Append `part`, joined with the last one where they touch and say the same."""
    if flat and flat[-1].end == part.start and flat[-1].deletion == part.deletion:
        part = RangeDeletion(flat.pop().start, part.end, part.deletion)
    flat.append(part)
