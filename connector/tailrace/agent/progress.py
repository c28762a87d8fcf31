"""When a host's progress is published, so that readers of quiet tables get on and idle hosts cost next to nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tailrace.state.resume import Resume
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress, encode_progress, progress_key

IDLE: Final = 6
"""A host is idle once its position has not moved for so many times `seconds`; it then waits so long between records."""


_NOTHING: Final = Position(1, -1, 0)
"""The position of a host that has read no change yet: before its log's first segment."""


class ProgressNotes:
    """At most one record each `seconds` while the position moves, and for a while after.

    The last move is complete only by a later record. `clock` is monotonic, in seconds; `milliseconds` is wall-clock
    time. `name` is the node's, or its address, for people.
    """

    def __init__(
        self,
        cluster: str,
        host: str,
        seconds: float,
        clock: Callable[[], float],
        milliseconds: Callable[[], int],
        name: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._host = host
        self._seconds = seconds
        self._clock = clock
        self._milliseconds = milliseconds
        self._name = name
        self._told: tuple[Position | None, bool, Position | None] = None, False, None
        self._at: float | None = None
        self._moved = 0.0
        self._complete_to: int | None = None

    def complete(self, milliseconds: int) -> None:
        """Everything that had been released by then is in the next transaction, or in earlier ones."""
        self._complete_to = milliseconds

    def due(self, position: Position | None, caught_up: bool, durable: Position | None = None) -> bool:
        """Whether it is time for a record that says so."""
        if self._at is None:
            return True
        idle = self._seconds * IDLE
        news = (position, caught_up, durable) != self._told or self._clock() - self._moved < idle
        return self._clock() - self._at >= (self._seconds if news else idle)

    def record(self, resume: Resume, caught_up: bool, durable: Position | None) -> tuple[bytes, bytes] | None:
        """Key and value of the record that goes with an offsets record, if one is due. `durable`: up to where
        Cassandra has flushed what was read; None for all of it.

        It counts as published from now on: a failed transaction ends this object's session.
        """
        position = resume.position
        if not self.due(position, caught_up, durable):
            return None
        if position != self._told[0]:
            self._moved = self._clock()
        self._told, self._at = (position, caught_up, durable), self._clock()
        parked = sum(len(lot.offsets) for lot in resume.parked)
        published = _NOTHING if position is None else position
        flushed = published if position is None or durable is None else min(position, durable)
        progress = Progress(
            self._cluster,
            self._host,
            published,
            flushed,
            self._milliseconds(),
            caught_up,
            parked,
            len(resume.quarantined),
            self._complete_to,
            self._name,
        )
        return progress_key(self._cluster, self._host), encode_progress(progress)
