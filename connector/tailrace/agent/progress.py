"""When a host's progress is told, so that readers of quiet tables get on and idle hosts cost next to nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tailrace.capture.resume import Resume
from tailrace.position import Position
from tailrace_schemas.progress import Place, Progress, encode_progress, progress_key

_IDLE: Final = 6
"""So many times as long as between two records that differ, an idle host waits before it repeats the last one."""


class ProgressNotes:
    """One record for each `seconds` at most while the position moves. `clock` is monotonic, in seconds;
    `milliseconds` is wall-clock time."""

    def __init__(
        self, cluster: str, host: str, seconds: float, clock: Callable[[], float], milliseconds: Callable[[], int]
    ) -> None:
        self._cluster = cluster
        self._host = host
        self._seconds = seconds
        self._clock = clock
        self._milliseconds = milliseconds
        self._told: tuple[Position | None, bool, Position | None] = None, False, None
        self._at: float | None = None

    def due(self, position: Position | None, caught_up: bool, durable: Position | None = None) -> bool:
        """Whether it is time for a record that says so."""
        if position is None or self._at is None:
            return position is not None
        news = (position, caught_up, durable) != self._told
        return self._clock() - self._at >= self._seconds * (1 if news else _IDLE)

    def record(self, resume: Resume, caught_up: bool, durable: Position | None) -> tuple[bytes, bytes] | None:
        """Key and value of the record that goes with an offsets record, if it is time for one. `durable`: up to where
        Cassandra has flushed what was read; None for all of it.

        It counts as told from now on: a transaction that fails ends the stretch of work that this is for.
        """
        at = resume.position
        if at is None or not self.due(at, caught_up, durable):
            return None
        self._told, self._at = (at, caught_up, durable), self._clock()
        place: Place = (at.epoch, at.segment, at.offset)
        parked = sum(len(lot.offsets) for lot in resume.parked)
        flushed = at if durable is None else min(at, durable)
        safe: Place = (flushed.epoch, flushed.segment, flushed.offset)
        progress = Progress(
            self._cluster, self._host, place, safe, self._milliseconds(), caught_up, parked, len(resume.quarantined)
        )
        return progress_key(self._cluster, self._host), encode_progress(progress)
