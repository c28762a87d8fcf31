"""Who shares one reading of topics: who may join where, the seats with what is queued for each, and who is too slow."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from tailrace_common.backoff import Waits
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, SinkProgress
from tailrace_spark.job.offsets import Offsets, PlannedBatch
from tailrace_spark.job.progress import MANY_RECORDS
from tailrace_spark.source.readings import Readings

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
"""Who has been a member for so long is as good as new."""
ALONE: Final = Waits(30.0, LONGEST_PAUSE_SECONDS)
"""How long a subscription stays alone that has left a reading because it failed or was slow."""
log = logging.getLogger("tailrace_spark")

_WAIT_SECONDS: Final = 0.2
QUEUED: Final = 2
"""Parts that may wait for a member. With more the reading waits, and then goes on without the member."""


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


def advanced(member: Offsets, plan: PlannedBatch) -> dict[KafkaPartition, int]:
    """The next offsets of a member once it has written its part of a batch. Raises ValueError for one with a gap."""
    if gap := behind(member, plan.start):
        raise ValueError(f"{gap} records before a shared batch were not read")
    return {**member, **{partition: max(end, member.get(partition, 0)) for partition, end in plan.end.items()}}


def without_read(pieces: Sequence[Piece], member: Offsets, plan: PlannedBatch) -> Sequence[Piece]:
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
class Handover:
    """The ids of the topics that were read, what the sink kept last of the stream's progress, and its readings.

    By them it finds that a topic was made again, and that the sink was emptied, as if it were the same stream.
    """

    topic_ids: Mapping[str, str] = field(default_factory=dict)
    kept: SinkProgress | None = None
    readings: Readings = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharedPart:
    """One part of a batch as all members get it, decoded; `last` of its batch. Parts of a batch come in order."""

    plan: PlannedBatch
    pieces: Sequence[Piece]
    last: bool


class Seat:
    """A member's, in one reading. One thread of the member's takes parts, and says of each that it is written."""

    def __init__(self, changed: threading.Condition, name: str, offsets: Offsets) -> None:
        """`changed` is that of all seats of the reading."""
        self._changed = changed
        self.name = name
        self.offsets = offsets
        """Where the member goes on to read; it has all before."""
        self.parts: deque[SharedPart] = deque()
        self.closed: str | None = None
        """Why no more parts come; None while they do."""

    def take(self, seconds: float) -> SharedPart | None:
        """The next part, until it is written; None where there is none within so many seconds, or none will be."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self.parts) or self.closed is not None, seconds)
            return self.parts[0] if self.parts else None

    def wrote(self, offsets: Offsets) -> None:
        """The part in hand is in the sink, and the member goes on there."""
        with self._changed:
            self.parts.popleft()
            self.offsets = offsets
            self._changed.notify_all()

    def leave(self, why: str) -> None:
        """Take no more parts; nobody waits for this member."""
        with self._changed:
            self.parts.clear()
            self.closed = self.closed or why
            self._changed.notify_all()


class Seats:
    """The members of one reading. `clock` is monotonic. Any thread may call."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._seats: list[Seat] = []
        self._position: Offsets | None = None
        self._closed: str | None = None
        self._joined_at = clock()

    def join(self, name: str, offsets: Offsets) -> Seat | None:
        """A seat from the next batch on; None where the reading is elsewhere, or has ended."""
        with self._changed:
            if self._closed is not None:
                return None
            if self._position is None:
                fits = may_found([offsets, *(seat.offsets for seat in self._open())])
            else:
                fits = may_join(offsets, self._position)
            if not fits:
                return None
            seat = Seat(self._changed, name, offsets)
            self._seats.append(seat)
            self._joined_at = self._clock()
            return seat

    def begin(self, quiet: float, longest: float, stop: threading.Event) -> dict[KafkaPartition, int]:
        """The offsets at which to begin, once nobody has joined for `quiet` seconds, after `longest` at the latest."""
        began = self._clock()
        with self._changed:
            while not stop.is_set():
                remaining = min(self._joined_at + quiet, began + longest) - self._clock()
                if remaining <= 0:
                    break
                self._changed.wait(min(remaining, _WAIT_SECONDS))
            start = common_start([seat.offsets for seat in self._open()])
            self._position = start
            return start

    @property
    def names(self) -> list[str]:
        """Who is there."""
        with self._changed:
            return [seat.name for seat in self._open()]

    def plan(self, plan: PlannedBatch) -> list[Seat]:
        """A batch begins: those that get its parts. Who joins later has to be behind its end."""
        with self._changed:
            self._position = {**(self._position or {}), **plan.end}
            return list(self._open())

    def hand_out(self, part: SharedPart, seats: Sequence[Seat]) -> None:
        """Queue a part for these members. Wait for those that have too many, and leave behind who is too slow."""
        began, seconds = self._clock(), list[float]()
        with self._changed:
            waiting = {seat for seat in seats if seat.closed is None}
            for seat in waiting:
                seat.parts.append(part)
            self._changed.notify_all()
            while self._closed is None:
                passed = self._clock() - began
                done = {seat for seat in waiting if len(seat.parts) <= QUEUED or seat.closed is not None}
                waiting -= done
                seconds += [passed for seat in done if seat.closed is None]
                if not waiting:
                    break
                queued = any(seat not in seats for seat in self._open())
                limit = patience(seconds, len(seconds) + len(waiting), queued=queued)
                if limit is not None and passed >= limit:
                    for seat in waiting:
                        why = f"it is slower than the others, which waited for {passed:.1f} s"
                        log.warning("%s leaves the shared reading and goes on alone: %s", seat.name, why)
                        seat.closed = why
                    break
                self._changed.wait(_WAIT_SECONDS)

    def close(self, why: str) -> None:
        """Close all seats; the parts that wait for members may be written still."""
        with self._changed:
            self._closed = why
            for seat in self._open():
                seat.closed = why
            self._changed.notify_all()

    def close_if_empty(self, why: str) -> bool:
        """Close for good where nobody is there; whether nobody can join any more."""
        with self._changed:
            if not self._open():
                self._closed = self._closed or why
            return self._closed is not None

    def _open(self) -> list[Seat]:
        """Those of the members that are there."""
        self._seats = [seat for seat in self._seats if seat.closed is None]
        return self._seats
