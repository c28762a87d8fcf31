"""The seats of a shared reading: each part of a batch is queued for all members, and none of them holds up the rest."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.job.offsets import Offsets, Plan
from tailrace_spark.job.sharing import common_start, may_found, may_join, patience

log = logging.getLogger("tailrace_spark")

_WAIT_SECONDS: Final = 0.2
QUEUED: Final = 2
"""Parts that may wait for a member. With more the reading waits, and then goes on without the member."""


@dataclass(frozen=True, slots=True)
class SharedPart:
    """One part of a batch as all members get it, decoded; `last` of its batch. Parts of a batch come in order."""

    batch: int
    plan: Plan
    pieces: Sequence[Piece]
    last: bool


class Seat:
    """A member's place. One thread of the member's takes parts, and says of each that it is written."""

    def __init__(self, seats: Seats, name: str, offsets: Offsets) -> None:
        self._seats = seats
        self.name = name
        self.offsets = offsets
        """Where the member goes on to read; it has all before."""
        self.parts: deque[SharedPart] = deque()
        self.closed: str | None = None
        """Why no more parts come; None while they do."""

    def take(self, seconds: float) -> SharedPart | None:
        """The next part, until it is written; None where there is none within so many seconds, or none will be."""
        return self._seats.take(self, seconds)

    def wrote(self, offsets: Offsets) -> None:
        """The part in hand is in the sink, and the member goes on there."""
        self._seats.wrote(self, offsets)

    def leave(self, why: str) -> None:
        """Take no more parts; nobody waits for this member."""
        self._seats.leave(self, why)


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
                fits = may_found([offsets, *(seat.offsets for seat in self._seats)])
            else:
                fits = may_join(offsets, self._position)
            if not fits:
                return None
            seat = Seat(self, name, offsets)
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
            start = common_start([seat.offsets for seat in self._seats])
            self._position = start
            return start

    @property
    def names(self) -> list[str]:
        """Who is there."""
        with self._changed:
            return [seat.name for seat in self._seats]

    def plan(self, plan: Plan) -> list[Seat]:
        """A batch begins: those that get its parts. Who joins later has to be behind its end."""
        with self._changed:
            self._position = {**(self._position or {}), **plan.end}
            return list(self._seats)

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
                queued = any(seat not in seats for seat in self._seats)
                limit = patience(seconds, len(seconds) + len(waiting), queued=queued)
                if limit is not None and passed >= limit:
                    for seat in waiting:
                        why = f"it is slower than the others, which waited for {passed:.1f} s"
                        log.warning("%s leaves the shared reading and goes on alone: %s", seat.name, why)
                        self._close(seat, why)
                    break
                self._changed.wait(_WAIT_SECONDS)

    def take(self, seat: Seat, seconds: float) -> SharedPart | None:
        """As Seat says."""
        with self._changed:
            self._changed.wait_for(lambda: bool(seat.parts) or seat.closed is not None, seconds)
            return seat.parts[0] if seat.parts else None

    def wrote(self, seat: Seat, offsets: Offsets) -> None:
        """As Seat says."""
        with self._changed:
            seat.parts.popleft()
            seat.offsets = offsets
            self._changed.notify_all()

    def leave(self, seat: Seat, why: str) -> None:
        """As Seat says."""
        with self._changed:
            seat.parts.clear()
            self._close(seat, why)
            self._changed.notify_all()

    def close(self, why: str) -> None:
        """Close all seats; the parts that wait for members may be written still."""
        with self._changed:
            self._closed = why
            for seat in list(self._seats):
                self._close(seat, why)
            self._changed.notify_all()

    def close_if_empty(self, why: str) -> bool:
        """Close for good where nobody is there; whether it is closed."""
        with self._changed:
            if not self._seats:
                self._closed = self._closed or why
            return self.closed

    @property
    def closed(self) -> bool:
        """Whether nobody can join any more."""
        return self._closed is not None

    def _close(self, seat: Seat, why: str) -> None:
        if seat.closed is None:
            seat.closed = why
            self._seats.remove(seat)
