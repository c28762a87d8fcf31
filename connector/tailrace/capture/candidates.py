"""The segments of cdc_raw and its spool, as they come and go, and which of them is to be read next."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from tailrace.capture.early import Ahead
from tailrace.capture.recovery import Recovery
from tailrace.commitlog.encryption import Keys
from tailrace.retention.finished_segments import FinishedSegments
from tailrace.retention.missing import Register, starts_run
from tailrace.segments.directory import Listing, SegmentFiles
from tailrace.segments.finality import has_begun, index_of, is_final
from tailrace.segments.index import Index
from tailrace.segments.open_segment import OpenSegment
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.capture")


class Candidates:
    """One directory, and the spool with it, as of the last scan. Files may vanish at any time, by any hand.

    `early`: segments without an index are candidates too.
    """

    def __init__(
        self,
        keys: Keys,
        register: Register,
        ends: FinishedSegments,
        read_ahead: Ahead,
        recovery: Recovery,
        *,
        early: bool,
    ) -> None:
        self._keys = keys
        self._early = early
        self._register = register
        self._ends = ends
        self._ahead = read_ahead
        self._recovery = recovery
        self._segments: dict[int, SegmentFiles] = {}
        self.unjudged: int | None = None
        """The next segment, while earlier ones may hold changes: all DDL before it has to be read first."""

    def scan(self, listing: Listing, position: Position, current: int) -> None:
        """Take in a new listing, and log what is missing. Reading has come to a position.

        `current` is the open segment, or -1. Raises OSError, LogEpochError.
        """
        present = {files.id: files for files in listing.segments}
        self._ends.forget_missing(frozenset(id for id, files in present.items() if files.log is not None))
        for files in listing.segments:
            if files.id <= position.segment and files.id not in self._segments:
                self._ends.judge_old(files, position)
                if files.log is not None and files.index is None and files.id < position.segment:
                    self._ahead.unindexed.add(files.id)  # it may get one, if it was read ahead of it
        self._segments = present
        self._ahead.look(present)
        for id in [id for id in self._ahead.unindexed if id not in present or present[id].index is not None]:
            self._ahead.unindexed.remove(id)
            if id in present and id not in self._register.left:
                self._ends.add(id)
        read_up_to = self._ends.read_up_to
        self._recovery.look(listing, read_up_to, self._register, self._ends.quarantined)
        excused = {*self._ends.quarantined, *self._recovery.open_files, current}
        self._register.suspect(id for id in self._recovery.holding if id > read_up_to)
        starts = partial(starts_run, present, self._keys)
        for loss in self._register.look(position, read_up_to, listing, excused, starts):
            _LOG.error("%s", loss)

    def next(self, reached: int) -> SegmentFiles | None:
        """The first segment at or above `reached` with something to read, if all before it are judged."""
        self.unjudged = None
        for id in sorted({*self._segments, *self._recovery.holding}):
            files = self._segments.get(id, SegmentFiles(id, None, None))
            done = id < reached or self._ends.knows(id)
            if done or id in self._register.left or id in self._ahead.unindexed:
                continue
            if not self.is_recovered(files):
                if files.log is None or (files.index is None and not self._early):
                    continue
                if files.index is None and not has_begun(files.log, self._keys):
                    return None
            self.unjudged = None if self._recovery.judged(id) else id
            return files if self.unjudged is None else None
        return None

    def is_recovered(self, files: SegmentFiles) -> bool:
        """Whether a segment holds changes and gets no index any more."""
        return self._recovery.applies(files, self._segments, early=self._early)

    def note(self, reached: int) -> None:
        """All segments up to one are read or passed over."""
        for id, files in self._segments.items():
            if id <= reached and files.log is not None:
                self._ends.note(id, files.log)

    def is_indexed(self, segment: int) -> bool:
        """Whether a segment has an index."""
        files = self._segments.get(segment)
        return files is not None and files.index is not None

    def read_index(self, segment: int) -> Index | None:
        """A segment's index; None without one, or where it says nothing. Raises OSError."""
        return index_of(self._segments[segment]) if self.is_indexed(segment) else None

    def is_final(self, segment: OpenSegment, index: Index | None) -> bool:
        """Whether all of an open segment stands in its file. Raises OSError."""
        return is_final(segment, index, self._segments, self._keys, early=self._early)

    def has_unread(self, first: int, last: int) -> bool:
        """Whether a segment between two, both included, holds changes that are still to be read."""
        holding = self._recovery.holding
        unread = (id for id in {*self._segments, *holding} if first <= id <= last and not self._ends.knows(id))
        return any(id in holding or self.is_indexed(id) for id in unread)

    def forget(self, segment: int) -> None:
        """A segment was released."""
        self._segments.pop(segment, None)
