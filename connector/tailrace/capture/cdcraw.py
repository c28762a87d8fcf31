"""cdc_raw as one ordered sequence: released mutations of all segments by position, finished segments released.

Rests on the order in which Cassandra's sync thread works: segments by id, and a segment's COMPLETED before any later
segment's index. So once a later segment has an index, an earlier one is final, and without index it has no cdc data.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Final

from tailrace.capture.early import Ahead
from tailrace.capture.listings import Listings
from tailrace.capture.recovery import Recovery
from tailrace.commitlog.encryption import NO_KEYS, Keys
from tailrace.commitlog.entry import Entry
from tailrace.errors import LogEpochError
from tailrace.retention.ledger import Ledger
from tailrace.retention.missing import Register, starts_run
from tailrace.retention.release import DELETED, Release
from tailrace.retention.spool import Spool, list_both
from tailrace.segments.directory import SegmentFiles
from tailrace.segments.finality import has_begun, index_of, is_final
from tailrace.segments.index import Index, advance
from tailrace.segments.kept import KeptSegments
from tailrace.segments.open_segment import OpenSegment, entries_at, header_checksum, require_keys
from tailrace.state.loss import Loss
from tailrace.state.resume import FIRST_EPOCH, Quarantined, Resume, SegmentKey
from tailrace.state.spans import Span
from tailrace_schemas.errors import DecodeError, ServiceError
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.capture")


class CdcRaw:
    """Reads one directory, and the spool with it. Not thread-safe. Files may vanish at any time, by any hand.

    `keys` open encrypted segments; `release` says what becomes of those that are done; `register` outlives sessions.
    `early`: read up to the last valid marker, ahead of the index (capture.early), segments without one too. `kept` and
    `commitlog`: where segments are read that cdc_raw has no longer (capture.recovery). `capacity`: see Ledger.
    """

    def __init__(
        self,
        directory: Path,
        resume: Resume,
        keys: Keys = NO_KEYS,
        *,
        spool: Spool | None = None,
        register: Register | None = None,
        release: Release = DELETED,
        early: bool = False,
        kept: KeptSegments | None = None,
        commitlog: Callable[[], Path | None] = lambda: None,
        capacity: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._directory = directory
        self._listings = Listings(directory, spool)
        self._keys = keys
        self._spool = spool
        self._lock = nullcontext() if spool is None else spool.lock
        self._register = register or Register()
        self._release = release
        self._opened = False  # an encrypted segment, by the keys
        self._at = resume.position or Position(FIRST_EPOCH, -1, 0)
        self._before = self._at
        self._epoch = self._at.epoch
        self._early = early
        self._ahead = Ahead(self._epoch, index_of)
        self._ledger = Ledger(released=dict(resume.open), capacity=capacity)
        self._segments: dict[int, SegmentFiles] = {}
        self._finished: dict[int, Position] = {}
        self._recovery = Recovery(kept, self._epoch, commitlog, keys)
        self.unjudged: Position | None = None
        """Up to where all DDL has to be read before reading goes on."""
        self._current: OpenSegment | None = None
        self._index: Index | None = None
        self.quarantined: dict[int, Quarantined] = {q.segment: q for q in resume.quarantined}
        self.keep(frozenset())
        # The last segment that was read to its end: here, as of a position that is in Kafka.
        self._read_up_to = self._told = min((self._at.segment, *(first - 1 for first, _ in resume.unread)))
        self._register.begin(self._told, resume.unread, resume.reported)
        if spool is not None:
            spool.use(self._epoch)

    def read(self, limit: int) -> list[Entry]:
        """The next released entries in position order, at most `limit`; none when nothing is released now.

        A broken segment is quarantined once it is final, and reading goes on with the next one. Raises ServiceError
        when the directory or a file cannot be read, and LogEpochError for a segment of another log (contracts.md 1).
        Raises SettingsError where the keys open no encrypted segment: all of them would end in quarantine.
        """
        try:
            return self._read(limit)
        except OSError as error:
            raise self._refused("read", error) from error

    def _read(self, limit: int) -> list[Entry]:
        while True:
            with self._lock:
                if self._current is None or not self._is_final(self._current):
                    self._scan()
                segment = self._current or self._open_next()
            if segment is None:
                return []
            # The index and finality are judged before the bytes are read: what they promise is there by then.
            self._read_index(segment)
            final = self._is_final(segment)
            entries, error = self._take(segment, limit, final)
            self._at = segment.position
            if entries:
                self._opened |= segment.encrypted
                return entries
            require_keys(error, opened=self._opened)
            if not final:
                return []
            self._finish(segment, error)

    def _take(self, segment: OpenSegment, limit: int, final: bool) -> tuple[list[Entry], DecodeError | None]:
        if segment.id == self._recovery.segment:
            return self._recovery.read(segment)
        return segment.read(limit, None if final or self._early else self._released())

    @property
    def durable(self) -> Position | None:
        """Up to where what was read is flushed; None for all of it."""
        return self._ahead.durable(self._at) if self._early else None

    def open_segments(self) -> tuple[SegmentKey, ...]:
        """Every segment that was read or passed over and may still be found: `open` of the offsets record."""
        return self._ledger.keys()

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What is missing, and not in Kafka yet: to be committed with the next record."""
        return self._register.losses

    def passed(self, position: Position, *, settled: bool) -> bool:
        """Whether `read` has given all entries at or below a position.

        It has when reading has come there, or when the segment there has no index and everything before was read.
        `settled`: the log has gone on behind the position, so that an index that was to come is there. Raises as
        `read` does.
        """
        if self._at >= position:
            return True
        if self._current is not None or not settled:
            return False
        try:
            with self._lock:
                self._scan()
        except OSError as error:
            raise self._refused("read", error) from error
        unread = (
            id
            for id in {*self._segments, *self._recovery.holding}
            if id >= self._at.segment and id not in {*self._finished, *self.quarantined}
        )
        return not any(self._has_changes(id) for id in unread if id <= position.segment)

    def _has_changes(self, segment: int) -> bool:
        files = self._segments.get(segment)
        return segment in self._recovery.holding or (files is not None and files.index is not None)

    def unread(self, position: Position | None) -> tuple[Span, ...]:
        """Segments that have an index and are not published to their end: `unread` of the offsets record."""
        return self._register.unread(self._done(position))

    def reported(self, position: Position | None) -> tuple[Span, ...]:
        """Missing segments that need no second report: `reported` of the offsets record."""
        return self._register.reported(self._done(position))

    def committed(self, position: Position | None, losses: Collection[Loss] = ()) -> None:
        """Kafka has a record with this position, its `unread` and `reported`, and these losses."""
        self._told = self._done(position)
        self._register.committed(self._told, losses)
        self._recovery.forget(min(self._told + 1, -1 if position is None else position.segment))

    def news(self, position: Position) -> bool:
        """Whether a record with this position would say more than the last: a loss, or a segment's end."""
        return bool(self.losses) or self._done(position) > self._told

    def keep(self, segments: frozenset[int]) -> None:
        """From now on these, and no others, are not released: something of them is not in Kafka yet."""
        self._kept = segments
        self._register.spared = segments | frozenset(self.quarantined)

    def finished(self, position: Position) -> bool:
        """Whether `release(position)` would release something, once a commit has told of it."""
        return any(end <= position and segment not in self._kept for segment, end in self._finished.items())

    def release(self, position: Position) -> tuple[int, ...]:
        """Delete, or archive, finished segments at or below a *committed* position; their ids. Idempotent.

        Only those that `committed` has told of: a successor takes others, once they are gone, for lost. Raises
        ServiceError where a file cannot go.
        """
        ended = (id for id, end in self._finished.items() if end <= position and id <= self._told)
        done = tuple(sorted(id for id in ended if id not in self._kept))
        with self._lock:
            now = {files.id: files for files in list_both(self._directory, self._spool).segments} if done else {}
            for segment in done:
                try:
                    self._ledger.release(now.get(segment, SegmentFiles(segment, None, None)), self._release)
                except OSError as error:
                    raise self._refused(self._release.verb, error) from error
                del self._finished[segment]
                self._segments.pop(segment, None)
                self._register.left |= {segment} if self._release.away is None else set()
            for id, files in now.items():
                if id < position.segment and files.log is None and files.index is not None:
                    files.index.unlink(missing_ok=True)  # of a loss, which is told
        return done

    def reread(self, epoch: int, segment: int, checksum: int, offsets: Collection[int]) -> Iterator[Entry]:
        """Mutations of a segment once more; see segment.entries_at. Raises ServiceError."""
        try:
            with self._lock:  # between the listing and the opening nothing is moved
                path = next((files.log for files in self._listings.take().segments if files.id == segment), None)
                if path is None or header_checksum(path) != checksum:
                    return
                opened = OpenSegment(path, segment, epoch, 0, self._keys)
            yield from entries_at(opened, offsets)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refused("read", error) from error

    def _done(self, position: Position | None) -> int:
        """The last segment of which everything is at or below a position."""
        ends = (id for id, end in self._finished.items() if position is not None and end <= position)
        return max((self._told, *ends))

    def _refused(self, what: str, error: OSError) -> ServiceError:
        file = error.filename or (self._directory if self._current is None else self._current.path)
        return ServiceError(
            f"cannot {what} {file}: {error.strerror}; let this user {what} it (run the agent as Cassandra's user), or "
            "move a broken file and its index away. Nothing from it on is published or released until then"
        )

    def quarantine(self, position: Position, error: DecodeError) -> None:
        """Read the segment no further: `position` is its last good mutation. Its files stay; others go on."""
        segment = position.segment
        if self._current is not None and self._current.id == segment:
            self._close_current()
        self._finished.pop(segment, None)
        checksum = dict(self._ledger.keys()).get(segment, 0)
        self.quarantined[segment] = Quarantined(segment, checksum, position.offset, str(error))
        self.keep(self._kept)
        _LOG.error(
            "quarantined segment %d after offset %d: it is kept, and reading goes on with the next one: %s",
            segment,
            position.offset,
            error,
        )

    def close(self) -> None:
        """Close every file."""
        self._close_current()
        self._ledger.close()

    def _close_current(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current, self._index = None, None

    def _released(self) -> int:
        return 0 if self._index is None else self._index.offset

    def _read_index(self, segment: OpenSegment) -> None:
        files = self._segments.get(segment.id)
        if files is None or files.index is None:
            return
        read = index_of(files)
        if read is not None and self._index is not None and read.offset < self._index.offset and not read.completed:
            _LOG.warning(
                "the CDC index of segment %d moved back from %d to %d; reading goes on from the higher one",
                segment.id,
                self._index.offset,
                read.offset,
            )
        self._index = advance(self._index, read)

    def _is_final(self, segment: OpenSegment) -> bool:
        return segment.id == self._recovery.segment or is_final(
            segment, self._index, self._segments, self._keys, early=self._early
        )

    def _finish(self, segment: OpenSegment, error: DecodeError | None) -> None:
        """The end of a final segment, clean or broken."""
        if segment.id == self._recovery.segment:
            self._finish_recovered(segment, error)
            return
        torn = self._index is not None and not self._index.completed and segment.logical >= self._index.offset
        if error is not None and not torn:
            self.quarantine(segment.position, error)
            if not segment.position.offset:
                self._at = self._before  # perhaps no segment at all: what comes later may have a smaller id
            return
        if error is not None:
            # A process that died in the middle of a write: what stands behind the index was never replayed either.
            _LOG.warning("segment %d: no valid data after the CDC index offset: %s", segment.id, error)
        elif self._early and segment.position.offset > segment.logical:
            self._register.retract(Position(self._epoch, segment.id, segment.logical), segment.position)
        files = self._segments.get(segment.id)
        if self._early and (files is None or files.index is None):
            self._ahead.unindexed.add(segment.id)
        else:
            self._finished[segment.id] = segment.position
        self._read_up_to = max(self._read_up_to, segment.id)
        self._close_current()

    def _finish_recovered(self, segment: OpenSegment, error: DecodeError | None) -> None:
        if error is not None:
            _LOG.error(
                "segment %d has no index and cannot be read after %s; its rest is reported as lost: %s",
                segment.id,
                self._at,
                error,
            )
            self._register.lose(segment.id, self._at)
        self._finished[segment.id] = self._recovery.upto
        self._read_up_to = max(self._read_up_to, segment.id)
        self._recovery.segment = None
        self._close_current()

    def _open_next(self) -> OpenSegment | None:
        files = self._next_files()
        if files is None:
            return None
        id, recovered = files.id, self._recovery.applies(files, self._segments, early=self._early)
        start_offset = self._at.offset if id == self._at.segment else 0
        try:
            segment = self._recovery.open(id, start_offset) if recovered else None
            if segment is None and files.log is not None:
                segment = OpenSegment(files.log, id, self._epoch, start_offset, self._keys)
        except FileNotFoundError:
            segment = None
        if segment is None:
            self._scan()  # moved, or lost
            return self._open_next()
        self._before, self._current, self._at = self._at, segment, segment.position
        # Whatever the record said of it: a release that was cut off may have left it.
        self._read_up_to, self._told = min(self._read_up_to, id - 1), min(self._told, id - 1)
        if files.index is not None or recovered:
            self._register.opened(id)
        self._ahead.opened(id)
        self._pass_over(id)
        _LOG.info("reading segment %d", id)
        return segment

    def _next_files(self) -> SegmentFiles | None:
        """The next segment with something to read, if all before it are judged."""
        self.unjudged = None
        for id in sorted({*self._segments, *self._recovery.holding}):
            files = self._segments.get(id, SegmentFiles(id, None, None))
            done = id < self._at.segment or id in self._finished or id in self.quarantined
            if done or id in self._register.left or id in self._ahead.unindexed:
                continue
            if not self._recovery.applies(files, self._segments, early=self._early):
                if files.log is None or (files.index is None and not self._early):
                    continue
                if files.index is None and not has_begun(files.log, self._keys):
                    return None
            self.unjudged = None if self._recovery.judged(id) else Position(self._epoch, id, 0)
            return files if self.unjudged is None else None
        return None

    def _pass_over(self, reached: int) -> None:
        for id, files in self._segments.items():
            if id <= reached and files.log is not None:
                self._ledger.note(id, files.log)

    def _scan(self) -> None:
        listing = self._listings.take()
        present = {files.id: files for files in listing.segments}
        self._ledger.forget_missing(frozenset(id for id, files in present.items() if files.log is not None))
        for files in listing.segments:
            if files.id <= self._at.segment and files.id not in self._segments:
                self._judge_old(files)
        self._segments = present
        self._ahead.look(present)
        for id in [id for id in self._ahead.unindexed if id not in present or present[id].index is not None]:
            self._ahead.unindexed.remove(id)
            if id in present and id not in self._register.left:
                self._finished[id] = Position(self._epoch, id, 0)
        self._recovery.look(listing, self._read_up_to, self._register, self.quarantined)
        excused = {*self.quarantined, *self._recovery.open_files, -1 if self._current is None else self._current.id}
        self._register.suspect(id for id in self._recovery.holding if id > self._read_up_to)
        starts = partial(starts_run, present, self._keys)
        for loss in self._register.look(self._at, self._read_up_to, listing, excused, starts):
            _LOG.error("%s", loss)

    def _judge_old(self, files: SegmentFiles) -> None:
        """A segment that appears at or below the place reached: known from before, or of another log."""
        id = files.id
        read = id < self._at.segment and files.index is not None and id not in self.quarantined
        away = self._release.away
        if files.log is None:
            # What a release left that was cut off between its two files.
            if read and files.index is not None and away is not None:
                away(files.index)
            return
        # The spool is of this log: what stands there alone, at or below the position, was moved as it was released.
        raw = next((path for path in files.doubles if path.suffix == ".log"), None) if files.spooled else files.log
        if raw is not None and not self._ledger.knows(id, raw):
            raise LogEpochError(files.name, str(self._at))
        self._ledger.note(id, files.log)
        if id < self._at.segment and files.index is None:
            self._ahead.unindexed.add(id)  # it may get one, if it was read ahead of it
        if read and away is None:
            self._register.left |= {id}
        elif read:
            self._finished[id] = Position(self._epoch, id, 0)
