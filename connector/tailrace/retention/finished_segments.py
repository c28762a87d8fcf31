"""The segments that are done: read to their end or quarantined, what of that is committed, and what may be released."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tailrace.errors import LogEpochError
from tailrace.retention.missing import Register
from tailrace.retention.release import DELETED, Release
from tailrace.segments.files import SegmentFiles
from tailrace.segments.open_segment import header_checksum
from tailrace.state import FIRST_EPOCH, Loss, Quarantined, Resume, SegmentKey, Span
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.capture")
# Where nobody says how many the log can hold: as many as commitlog_total_space takes by default, 8 GiB of 32 MiB each.
REMEMBERED: Final = 256
_MOST_OPEN: Final = 256


@dataclass(slots=True)
class Ledger:
    """Which segments are known to this host: linked, released while Cassandra still holds them, quarantined. This is
    `open` of the offsets record (docs/contracts.md section 1). A segment that is not in it was never read, even
    at or below the position. A host id can come back with another disk.

    Mutable; one per reader.

    `linked` are segments in the directory that were read or passed over. `released` are segments whose files we
    removed while the commit log's own link still stood. When the node replays its log after a crash, it links them
    into cdc_raw again, and they must not be taken for a new log's. The file is held open to see the last link go.

    That cannot be seen of a copy, of what an earlier process released, and beyond the files that are held open. Such a
    segment is remembered while an older one is in the log, or while no more are known than the log can hold. That is
    the node's `capacity` (None: unknown), or the count of an earlier process.
    """

    linked: dict[int, int] = field(default_factory=dict)
    released: dict[int, int] = field(default_factory=dict)
    capacity: Callable[[], int | None] = lambda: None
    _counted: int = 0
    _held: dict[int, tuple[int, int]] = field(default_factory=dict)  # the open file, and how many links of it are ours

    def __post_init__(self) -> None:
        self._counted = len(self.released)

    def keys(self) -> tuple[SegmentKey, ...]:
        """Every known segment, by id: `open` of the offsets record."""
        return tuple(sorted((self.released | self.linked).items()))

    def note(self, segment: int, path: Path) -> None:
        """A linked segment was read or passed over."""
        if segment not in self.linked:
            try:
                self.linked[segment] = header_checksum(path)
            except FileNotFoundError:
                return
            self.released.pop(segment, None)

    def knows(self, segment: int, path: Path) -> bool:
        """Whether this very segment, by id and header, was read before. A file that just vanished counts as known."""
        checksum = self.linked.get(segment, self.released.get(segment))
        try:
            return checksum is not None and checksum == header_checksum(path)
        except FileNotFoundError:
            return True

    def forget_missing(self, present: frozenset[int]) -> None:
        """Drop what Cassandra deleted from the directory, and released segments that it holds no longer."""
        for segment in self.linked.keys() - present:
            del self.linked[segment]
        for segment, (descriptor, own_links) in list(self._held.items()):
            if os.fstat(descriptor).st_nlink <= own_links:
                self._drop(segment)
        if len(self.released) > max(REMEMBERED, self._counted):
            limit = max(REMEMBERED, self._counted, self.capacity() or 0)
            unseen = (segment for segment in sorted(self.released) if segment < min(self._held, default=segment + 1))
            for segment in tuple(unseen)[: max(0, len(self.released) - limit)]:
                self._drop(segment)

    def release(self, files: SegmentFiles, release: Release = DELETED) -> None:
        """Take a segment's files away, the log first: an index alone is litter, a log alone would look unreleased.

        Idempotent; files that are gone already are fine, and doubles are deleted.
        """
        if release.away is None:
            return
        if files.log is not None:
            self.note(files.id, files.log)
        for double in files.doubles:
            double.unlink(missing_ok=True)
        if files.log is not None:
            self._take_log(files.id, files.log, release, copied=files.spooled)
        if files.index is not None:
            release.away(files.index)
        _LOG.info("released segment %d (%s)", files.id, release.verb)

    def _take_log(self, segment: int, log: Path, release: Release, *, copied: bool) -> None:
        try:
            descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self.linked.pop(segment, None)
            return
        try:
            if release.away is not None:
                release.away(log)
        except OSError:
            os.close(descriptor)
            raise
        self.released[segment] = self.linked.pop(segment, 0)
        previous, _ = self._held.pop(segment, (None, 0))
        if previous is not None:
            os.close(previous)
        status = os.fstat(descriptor)
        own_links = int(release.target is not None and _is_file(release.target(log), status))
        if status.st_nlink > own_links and len(self._held) < _MOST_OPEN:
            self._held[segment] = (descriptor, own_links)
            return
        os.close(descriptor)
        if not copied and status.st_nlink <= own_links:
            self._drop(segment)

    def _drop(self, segment: int) -> None:
        self.released.pop(segment, None)
        descriptor, _ = self._held.pop(segment, (None, 0))
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close the held files."""
        for descriptor, _ in self._held.values():
            os.close(descriptor)
        self._held.clear()


def _is_file(path: Path, status: os.stat_result) -> bool:
    try:
        named = path.stat()
    except OSError:
        return False
    return (named.st_ino, named.st_dev) == (status.st_ino, status.st_dev)


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

    def sweep(self, files: SegmentFiles) -> None:
        """Delete the index of a log that is gone, a loss that is reported, unless files are left. Raises OSError."""
        if files.log is None and files.index is not None and self._release.away is not None:
            files.index.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files of released segments that are still held open."""
        self._ledger.close()
