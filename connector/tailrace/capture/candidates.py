"""The segments of cdc_raw and its spool: which there are, which is read next, and the one that is read now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tailrace.capture.recovery import Recovery
from tailrace.commitlog.blocks import Keys
from tailrace.commitlog.frames import Entry
from tailrace.retention.finished_segments import FinishedSegments
from tailrace.retention.missing import Register, starts_run
from tailrace.retention.spool import Spool, list_both
from tailrace.segments.files import Index, Listing, SegmentFiles, advance
from tailrace.segments.open_segment import OpenSegment, has_begun, index_of, is_final, is_genuine
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.capture")


class Listings:
    """Listings of one directory, and of the spool with it, by one who holds the spool's lock."""

    def __init__(self, directory: Path, spool: Spool | None) -> None:
        self._directory = directory
        self._spool = spool
        self._indexed: frozenset[int] = frozenset()
        self._foreign: frozenset[str] = frozenset()

    def take(self) -> Listing:
        """The segments at an instant when no index is missing that is older than one seen. Raises OSError.

        A listing is no snapshot: one that shows a new index may miss an older one, created just before it. Files that
        are not Cassandra's are named in the log, each once.
        """
        while True:
            listing = list_both(self._directory, self._spool)
            indexed = frozenset(files.id for files in listing.segments if files.index is not None)
            stable, self._indexed = indexed <= self._indexed, indexed
            if stable:
                self._warn_foreign(listing.foreign)
                return listing

    def _warn_foreign(self, names: Iterable[str]) -> None:
        new = frozenset(names) - self._foreign
        if new:
            _LOG.warning(
                "%s: these files are not Cassandra's and are ignored: %s", self._directory, ", ".join(sorted(new))
            )
        self._foreign |= new


class Ahead:
    """Early mode: which segments were read ahead of their index, and what of them is durable by now.

    Mutable. `read_index` reads an index, None for what says nothing (yet).
    """

    def __init__(self, epoch: int, read_index: Callable[[SegmentFiles], Index | None]) -> None:
        self._epoch = epoch
        self._read_index = read_index
        self._flushed: dict[int, int] = {}
        self.unindexed: set[int] = set()
        """Segments that were read to their end before they had an index: most never get one."""

    def opened(self, segment: int) -> None:
        """It is read from now on."""
        self._flushed.setdefault(segment, 0)

    def look(self, present: Mapping[int, SegmentFiles]) -> None:
        """What the directory has now. A segment whose successor has an index was flushed whole, as was one that
        Cassandra has deleted."""
        newest = (id for id, files in sorted(present.items(), reverse=True) if files.index is not None)
        indexed = next((id for id in newest if is_genuine(present[id])), -1) if self._flushed else -1
        for segment, flushed_offset in list(self._flushed.items()):
            files = present.get(segment)
            if files is None or files.log is None or files.spooled or segment < indexed:
                del self._flushed[segment]
                continue
            index = None if files.index is None else self._read_index(files)
            if index is not None and index.completed:
                del self._flushed[segment]
            elif index is not None:
                self._flushed[segment] = max(flushed_offset, index.offset)

    def durable(self, position: Position) -> Position:
        """Up to where no crash can take anything back, of what was read up to `position`."""
        if not self._flushed:
            return position
        first = min(self._flushed)
        return min(position, Position(self._epoch, first, self._flushed[first]))


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
        excused = {*self._ends.quarantined, *self._recovery.at_hand, current}
        self._register.suspect(id for id in self._recovery.holding if id > read_up_to)
        starts = partial(starts_run, present, self._keys)
        for loss in self._register.look(position, read_up_to, listing, excused, starts):
            _LOG.error("%s", loss)

    def next(self, reached: int) -> SegmentFiles | None:
        """The first segment at or above `reached` with something to read, if all before it are judged."""
        self.unjudged = None
        empty = list[Path]()
        for id in sorted({*self._segments, *self._recovery.holding}):
            files = self._segments.get(id, SegmentFiles(id, None, None))
            done = id < reached or self._ends.knows(id)
            if done or id in self._register.left or id in self._ahead.unindexed:
                continue
            if not self.is_recovered(files):
                if files.log is None or (files.index is None and not self._early):
                    continue
                if files.index is None and not has_begun(files.log, self._keys):
                    empty.append(files.log)
                    continue
            # One that Cassandra allocated and never used stays empty. Others were begun before this one was, so that
            # they are known by a second look.
            if any(has_begun(log, self._keys) for log in empty):
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


class CurrentSegment:
    """An open segment and its index. With `recovery` it gets no index, is final, and is read by its table ids.

    `early`: it is read up to its last valid marker, ahead of the index.
    """

    def __init__(self, file: OpenSegment, candidates: Candidates, recovery: Recovery | None, *, early: bool) -> None:
        self.file = file
        self.recovery = recovery
        self._candidates = candidates
        self._early = early
        self._index: Index | None = None

    @property
    def is_final(self) -> bool:
        """Whether all of it stands in its file. Raises OSError."""
        return self.recovery is not None or self._candidates.is_final(self.file, self._index)

    @property
    def is_torn(self) -> bool:
        """Whether the process that wrote it died in the middle of a write, and all that the index releases is read."""
        index = self._index
        return index is not None and not index.completed and self.file.logical >= index.offset

    def read_index(self) -> None:
        """Take in what the index says now. Raises OSError."""
        if not self._candidates.is_indexed(self.file.id):
            return
        read = self._candidates.read_index(self.file.id)
        if read is not None and self._index is not None and read.offset < self._index.offset and not read.completed:
            _LOG.warning(
                "the CDC index of segment %d moved back from %d to %d; reading goes on from the higher one",
                self.file.id,
                self._index.offset,
                read.offset,
            )
        self._index = advance(self._index, read)

    def read(self, limit: int, *, final: bool) -> tuple[list[Entry], DecodeError | None]:
        """The next entries, at most `limit`, and what broke behind them. Raises OSError."""
        if self.recovery is not None:
            return self.recovery.read(self.file)
        released = 0 if self._index is None else self._index.offset
        entries, error = self.file.read(limit, None if final or self._early else released)
        if final and not entries and error is None:
            error = self.file.missing_end(self._index)
        return entries, error

    def close(self) -> None:
        """Close its file."""
        self.file.close()
