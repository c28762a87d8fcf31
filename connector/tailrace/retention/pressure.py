"""What is done when cdc_raw nears its limit: finished segments are spooled, or dropped, or nothing is (hold).

A Kafka outage must not stop production's writes: a full cdc_raw refuses them, or, with cdc_block_writes: false, loses
changes. It is looked after in a thread of its own, because the run loop may wait for Kafka for half a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from tailrace.ops.headroom import Headroom, Meter, NodeLimits
from tailrace.ops.health import HealthBoard
from tailrace.retention.missing import Register
from tailrace.retention.spool import Spool, SpoolError, list_both, size_in_raw, size_of
from tailrace.segments.files import Listing, SegmentFiles, parse_index
from tailrace.segments.open_segment import is_genuine
from tailrace.state import ids_of
from tailrace_common.closing import Turns
from tailrace_schemas.errors import ServiceError

_LOG: Final = logging.getLogger("tailrace.capture")

_LEFT_BEHIND: Final = "spool of an earlier log epoch"


class Mode(StrEnum):
    """`agent.on_pressure`."""

    SPOOL = "spool"
    HOLD = "hold"
    DROP_OLDEST = "drop-oldest"


@dataclass(frozen=True, slots=True)
class Sized:
    """A segment in cdc_raw that could go, and its bytes."""

    id: int
    size: int


def to_move(candidates: Sequence[Sized], used: int, threshold: int, room: int | None) -> tuple[int, ...]:
    """The oldest of the candidates, as many as it takes to bring `used` below `threshold`, as far as `room` goes.

    All in bytes; candidates by ascending id; `room` None: there is no end to it.
    """
    chosen = []
    for candidate in candidates:
        if used < threshold or (room is not None and candidate.size > room):
            break
        chosen.append(candidate.id)
        used -= candidate.size
        room = None if room is None else room - candidate.size
    return tuple(chosen)


def final_segments(listing: Listing) -> tuple[SegmentFiles, ...]:
    """Segments of cdc_raw that have an index and get nothing more, by id.

    Cassandra finishes an index before it begins a later one; a file with one link is in no commit log any more.
    """
    indexed = [files for files in listing.segments if files.index is not None]
    newest = next((files.id for files in reversed(indexed) if is_genuine(files)), -1)
    return tuple(
        files
        for files in indexed
        if files.log is not None and not files.spooled and (files.id < newest or _is_final(files.log, files.index))
    )


def _is_final(log: Path, index: Path | None) -> bool:
    try:
        content = None if index is None else parse_index(index.read_bytes())
        return (content is not None and content.completed) or log.stat().st_nlink == 1
    except OSError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When cdc_raw counts as nearly full, and what is done then. `percent` is of the node's own limit."""

    mode: Mode = Mode.SPOOL
    percent: int = 75


class Tender:
    """Looks after cdc_raw: `tend` once in a while, at least every few seconds, from one thread.

    `limits` is what the node says, asked again at each look; `clock` is monotonic seconds.
    """

    def __init__(
        self,
        directory: Path,
        spool: Spool | None,
        register: Register,
        policy: Policy,
        board: HealthBoard,
        limits: Callable[[], NodeLimits],
        clock: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._spool = spool
        self._register = register
        self._policy = policy
        self._board = board
        self._limits = limits
        self._clock = clock
        self._meter = Meter()
        self._near = False

    def tend(self) -> Headroom | None:
        """Look once, and do what is due; what was found, after it. None where cdc_raw could not be looked at."""
        try:
            listing = list_both(self._directory, self._spool)
        except ServiceError as error:
            self._board.degrade("cdc_raw", str(error))
            return None
        self._board.recover("cdc_raw")
        self._register.see(listing)
        unread = ids_of(self._register.unread(-1))
        waiting = [size_of(files) for files in listing.segments if files.id in unread]
        self._board.gauge(waiting_segments=len(waiting), waiting_bytes=sum(waiting))
        limits, used = self._limits(), sum(size_in_raw(files) for files in listing.segments)
        spooled = sum(size_of(files) for files in listing.segments if files.spooled)
        headroom = Headroom(used, limits.total, self._meter.add(self._clock(), used), spooled)
        relieved, problem = self._relieve(listing, headroom, threshold_of(limits, self._policy.percent))
        self._board.headroom(relieved)
        self._tell(relieved, threshold_of(limits, self._policy.percent), problem)
        self._tell_left_behind()
        return relieved

    def _relieve(self, listing: Listing, headroom: Headroom, threshold: int | None) -> tuple[Headroom, str | None]:
        """What is left afterwards, and why it was not enough."""
        spool, mode = self._spool, self._policy.mode
        for files in listing.segments:
            if spool is not None and files.spooled and files.doubles:
                headroom = replace(headroom, used=headroom.used - spool.settle(files))
        if threshold is None or headroom.used < threshold or mode is Mode.HOLD:
            return headroom, None
        going = [files for files in final_segments(listing) if files.id not in self._register.left]
        if mode is Mode.DROP_OLDEST:
            spared = self._register.spared
            going = [files for files in going if spared is not None and files.id not in spared]
            room = None
        else:
            room = 0 if spool is None else max(0, spool.limit - headroom.spooled)
        chosen = frozenset(
            to_move([Sized(candidate.id, size_of(candidate)) for candidate in going], headroom.used, threshold, room)
        )
        problem = None
        for files in (candidate for candidate in going if candidate.id in chosen):
            size = size_of(files)
            try:
                self._move(files)
            except SpoolError as error:
                problem = str(error)
                break
            headroom = replace(
                headroom, used=headroom.used - size, spooled=headroom.spooled + (0 if room is None else size)
            )
        if problem is None and headroom.used >= threshold and len(chosen) < len(going):
            problem = f"the spool is full: agent.spool_bytes = {0 if spool is None else spool.limit}"
        return headroom, problem

    def _move(self, files: SegmentFiles) -> None:
        if self._policy.mode is Mode.SPOOL and self._spool is not None:
            self._spool.take(files)
            self._board.count(spooled=1)
        elif files.log is not None:
            # Its index stays: by that the loss is found, by a successor too, and told.
            try:
                files.log.unlink(missing_ok=True)
            except OSError as error:
                raise SpoolError(f"agent.on_pressure: cannot drop {files.log}: {error.strerror}") from error
            self._board.count(dropped=1)
            _LOG.error(
                "dropped segment %d unread, and its changes are lost: agent.on_pressure is drop-oldest", files.id
            )

    def _tell(self, headroom: Headroom, threshold: int | None, problem: str | None) -> None:
        if self._policy.mode is Mode.SPOOL and self._spool is not None:
            problem = problem or self._spool.problem() or _nearly_full(self._spool, headroom, self._policy.percent)
        if problem is None:
            self._board.recover("spool")
        elif self._board.degrade("spool", problem):
            _LOG.error("%s", problem)
        near = threshold is not None and headroom.used >= threshold
        words = f"{headroom}: once it is full Cassandra refuses writes to tables with cdc, or deletes what is unread"
        if near:
            self._board.degrade("headroom", words)
        else:
            self._board.recover("headroom")
        if near and not self._near:
            _LOG.warning("%s", words)
        self._near = near

    def _tell_left_behind(self) -> None:
        # Before a record was read, the epoch is that of a note, or none.
        if self._spool is None or self._register.spared is None:
            return
        words = ". ".join(
            f"{directory} has segments of an earlier log epoch, which are not published: "
            f"`tailrace replay {directory}` publishes them; then delete them"
            for directory in self._spool.left_behind()
        )
        if words:
            self._board.degrade(_LEFT_BEHIND, words)
        else:
            self._board.recover(_LEFT_BEHIND)


def threshold_of(limits: NodeLimits, percent: int) -> int | None:
    """Bytes at which cdc_raw counts as nearly full; None: its limit is unknown.

    Two segments below the limit at the latest: Cassandra refuses writes once there is no room for one more.
    """
    if limits.total is None:
        return None
    return max(0, min(limits.total * percent // 100, limits.total - 2 * (limits.segment or 0)))


def _nearly_full(spool: Spool, headroom: Headroom, percent: int) -> str | None:
    if headroom.spooled * 100 < spool.limit * percent:
        return None
    return (
        f"{headroom.spooled >> 20} of {spool.limit >> 20} MiB (agent.spool_bytes) in {spool.directory}: once the spool "
        "is full nothing is moved out of a full cdc_raw"
    )


class Tending(Turns[Tender]):
    """A thread that tends until it is closed; a segment that is being moved then is moved to its end."""

    patience = None

    def __init__(self, tender: Tender, seconds: float) -> None:
        super().__init__("cdc_raw", lambda: nullcontext(tender))
        self._seconds = seconds
        self.begin()

    def _turn(self, opened: Tender) -> float:
        opened.tend()
        return self._seconds

    def _failed(self, error: Exception) -> float:
        _LOG.error("the supervision of cdc_raw failed; trying again", exc_info=error)
        return self._seconds
