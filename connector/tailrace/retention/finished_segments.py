"""The segments that are done: read to their end or quarantined, what of that is committed, and what may be released."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from tailrace.errors import LogEpochError
from tailrace.retention.ledger import Ledger
from tailrace.retention.missing import Register
from tailrace.retention.release import Release
from tailrace.segments.directory import SegmentFiles
from tailrace.state import FIRST_EPOCH, Loss, Quarantined, Resume, SegmentKey, Span
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.capture")


class FinishedSegments:
    """Mutable; begins with an offsets record. `register` outlives sessions. `capacity`: see Ledger."""

    def __init__(
        self, resume: Resume, register: Register, release: Release, capacity: Callable[[], int | None]
    ) -> None:
        self._register = register
        self._ledger = Ledger(released=dict(resume.open), capacity=capacity)
        self._release = release
        position = resume.position or Position(FIRST_EPOCH, -1, 0)
        self._epoch = position.epoch
        self._finished: dict[int, Position] = {}  # the end of each segment that is read, and not released
        self._retained = frozenset[int]()
        self.quarantined: dict[int, Quarantined] = {entry.segment: entry for entry in resume.quarantined}
        self.retain(frozenset())
        self.read_up_to = min((position.segment, *(first - 1 for first, _ in resume.unread)))
        """The last segment that was read to its end."""
        self._committed = self.read_up_to  # the same, as of a position that is in Kafka
        register.begin(self._committed, resume.unread, resume.reported)

    # -- reading

    def note(self, segment: int, log: Path) -> None:
        """A segment in the directory is read or passed over."""
        self._ledger.note(segment, log)

    def forget_missing(self, present: frozenset[int]) -> None:
        """Forget the segments that Cassandra has deleted, by those whose logs are `present`."""
        self._ledger.forget_missing(present)

    def knows(self, segment: int) -> bool:
        """Whether a segment is read to its end, or quarantined."""
        return segment in self._finished or segment in self.quarantined

    def begin(self, segment: int) -> None:
        """A segment is read from now on, whatever the record says: a release that was cut off may have left it."""
        self.read_up_to, self._committed = min(self.read_up_to, segment - 1), min(self._committed, segment - 1)

    def end(self, segment: int, position: Position | None) -> None:
        """A segment is read to its end, which is at a position; None where it may get an index yet."""
        if position is not None:
            self._finished[segment] = position
        self.read_up_to = max(self.read_up_to, segment)

    def add(self, segment: int) -> None:
        """A segment was read to its end before the present position."""
        self._finished[segment] = Position(self._epoch, segment, 0)

    def quarantine(self, position: Position, error: DecodeError) -> None:
        """A segment is read no further: `position` is its last good mutation. Its files stay."""
        segment = position.segment
        self._finished.pop(segment, None)
        checksum = dict(self._ledger.keys()).get(segment, 0)
        self.quarantined[segment] = Quarantined(segment, checksum, position.offset, str(error))
        self.retain(self._retained)
        _LOG.error(
            "quarantined segment %d after offset %d: it is kept, and reading goes on with the next one: %s",
            segment,
            position.offset,
            error,
        )

    def judge_old(self, files: SegmentFiles, position: Position) -> None:
        """A segment that appears at or below the position of reading: known from before, or of another log.

        Raises LogEpochError.
        """
        id = files.id
        read = id < position.segment and files.index is not None and id not in self.quarantined
        away = self._release.away
        if files.log is None:
            # What a release left that was cut off between its two files.
            if read and files.index is not None and away is not None:
                away(files.index)
            return
        # The spool is of this log: what stands there alone, at or below the position, was moved as it was released.
        raw = next((path for path in files.doubles if path.suffix == ".log"), None) if files.spooled else files.log
        if raw is not None and not self._ledger.knows(id, raw):
            raise LogEpochError(files.name, str(position))
        self._ledger.note(id, files.log)
        if read and away is None:
            self._register.left |= {id}
        elif read:
            self.add(id)

    # -- the offsets record

    def open_segments(self) -> tuple[SegmentKey, ...]:
        """Every segment that was read or passed over and may still be found: `open` of the offsets record."""
        return self._ledger.keys()

    def unread(self, position: Position | None) -> tuple[Span, ...]:
        """Segments that have an index and are not published to their end: `unread` of the offsets record."""
        return self._register.unread(self._last(position))

    def reported(self, position: Position | None) -> tuple[Span, ...]:
        """Missing segments that need no second report: `reported` of the offsets record."""
        return self._register.reported(self._last(position))

    def committed(self, position: Position | None, losses: Collection[Loss]) -> int:
        """Kafka has a record with this position, its `unread` and `reported`, and these losses.

        Returns the last segment of which everything is at or below it.
        """
        self._committed = self._last(position)
        self._register.committed(self._committed, losses)
        return self._committed

    def news(self, position: Position) -> bool:
        """Whether a record with this position would say more than the last: a loss, or a segment's end."""
        return bool(self._register.losses) or self._last(position) > self._committed

    def _last(self, position: Position | None) -> int:
        """The last segment of which everything is at or below a position."""
        ends = (id for id, end in self._finished.items() if position is not None and end <= position)
        return max((self._committed, *ends))

    # -- releasing

    def retain(self, segments: frozenset[int]) -> None:
        """From now on these, and no others, are not released: something of them is not in Kafka yet."""
        self._retained = segments
        self._register.spared = segments | frozenset(self.quarantined)

    def finished(self, position: Position) -> bool:
        """Whether a release up to a position would release something, once a commit has recorded it."""
        return any(end <= position and segment not in self._retained for segment, end in self._finished.items())

    def releasable(self, position: Position) -> tuple[int, ...]:
        """The segments to release at or below a *committed* position.

        Only those that `committed` has recorded: a successor takes others, once they are gone, for lost.
        """
        ended = (id for id, end in self._finished.items() if end <= position and id <= self._committed)
        return tuple(sorted(id for id in ended if id not in self._retained))

    def release(self, files: SegmentFiles) -> None:
        """Delete, or archive, a finished segment. Raises OSError."""
        self._ledger.release(files, self._release)
        del self._finished[files.id]
        self._register.left |= {files.id} if self._release.away is None else set()

    def close(self) -> None:
        """Close the files of released segments that are still held open."""
        self._ledger.close()
