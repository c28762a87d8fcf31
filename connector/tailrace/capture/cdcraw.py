"""cdc_raw as one ordered sequence: released mutations of all segments by position, finished segments released.

Rests on the order in which Cassandra's sync thread works: segments by id, and a segment's COMPLETED before any later
segment's index. So once a later segment has an index, an earlier one is final, and without index it has no cdc data.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final
from uuid import UUID

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from tailrace.capture.candidates import Ahead, Candidates, CurrentSegment, Listings
from tailrace.capture.recovery import Recovery
from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.commitlog.frames import Entry
from tailrace.retention.finished_segments import FinishedSegments
from tailrace.retention.missing import Register
from tailrace.retention.release import DELETED, Release
from tailrace.retention.spool import Spool, list_both
from tailrace.segments.files import SegmentFiles
from tailrace.segments.kept import KeptSegments
from tailrace.segments.open_segment import (
    OpenSegment,
    entries_at,
    header_checksum,
    holds_table,
    index_of,
    require_keys,
)
from tailrace.state import FIRST_EPOCH, Loss, Quarantined, Resume, SegmentKey, Span
from tailrace_common.closing import Closing
from tailrace_schemas.errors import DecodeError, ServiceError
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.capture")
_KINDS: Final = frozenset({"created", "modified", "moved", "closed", "deleted"})


class CdcRaw:
    """Reads one directory, and the spool with it. Not thread-safe. Files may vanish at any time, by any hand.

    `keys` open encrypted segments; `release` says what becomes of those that are done; `register` outlives sessions.
    `early`: read up to the last valid marker, ahead of the index (candidates.Ahead), segments without one too. `kept`
    and `commitlog`: where segments are read that cdc_raw has no longer (capture.recovery). `capacity`: see Ledger.
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
        kept_segments: KeptSegments | None = None,
        commitlog: Callable[[], Path | None] = lambda: None,
        capacity: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._directory = directory
        self._listings = Listings(directory, spool)
        self._keys = keys
        self._spool = spool
        self._lock = nullcontext() if spool is None else spool.lock
        self._register = register or Register()
        self._verb = release.verb
        self._opened = False  # an encrypted segment, by the keys
        self._at = resume.position or Position(FIRST_EPOCH, -1, 0)
        self._previous = self._at
        self._epoch = self._at.epoch
        self._early = early
        self._ahead = Ahead(self._epoch, index_of)
        self._ends = FinishedSegments(resume, self._register, release, capacity)
        self._recovery = Recovery(kept_segments, self._epoch, commitlog, keys)
        self._candidates = Candidates(keys, self._register, self._ends, self._ahead, self._recovery, early=early)
        self._current: CurrentSegment | None = None
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
                if self._current is None or not self._current.is_final:
                    self._scan()
                current = self._current or self._open_next()
            if current is None:
                return []
            # The index and finality are judged before the bytes are read: what they promise is there by then.
            current.read_index()
            final = current.is_final
            entries, error = current.read(limit, final=final)
            self._at = current.file.position
            if entries:
                self._opened |= current.file.encrypted
                return entries
            require_keys(error, opened=self._opened)
            if not final:
                return []
            self._finish(current, error)

    @property
    def unjudged(self) -> Position | None:
        """Up to where all DDL has to be read before reading goes on."""
        segment = self._candidates.unjudged
        return None if segment is None else Position(self._epoch, segment, 0)

    @property
    def durable(self) -> Position | None:
        """Up to where what was read is flushed; None for all of it."""
        return self._ahead.durable(self._at) if self._early else None

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
        return not self._candidates.has_unread(self._at.segment, position.segment)

    # -- the offsets record, and what it releases; see FinishedSegments

    @property
    def quarantined(self) -> dict[int, Quarantined]:
        """The segments that are read no further, by id."""
        return self._ends.quarantined

    def open_segments(self) -> tuple[SegmentKey, ...]:
        """`open` of the offsets record."""
        return self._ends.open_segments()

    def unread(self, position: Position | None) -> tuple[Span, ...]:
        """`unread` of the offsets record."""
        return self._ends.unread(position)

    def reported(self, position: Position | None) -> tuple[Span, ...]:
        """`reported` of the offsets record."""
        return self._ends.reported(position)

    def committed(self, position: Position | None, losses: Collection[Loss] = ()) -> None:
        """Kafka has a record with this position, its `unread` and `reported`, and these losses."""
        last = self._ends.committed(position, losses)
        self._recovery.forget(min(last + 1, -1 if position is None else position.segment))

    def news(self, position: Position) -> bool:
        """Whether a record with this position would say more than the last: a loss, or a segment's end."""
        return self._ends.news(position)

    def keep(self, segments: frozenset[int]) -> None:
        """From now on these, and no others, are not released: something of them is not in Kafka yet.

        Raises ServiceError where one cannot be kept.
        """
        self._ends.retain(segments)
        self._save(segments)

    def _save(self, segments: frozenset[int]) -> None:
        """Put those of some segments that have no index into the spool: Cassandra deletes them. Raises ServiceError."""
        if self._spool is not None:
            for id, path in self._recovery.save(segments, self._spool):
                self._ends.note(id, path)

    def finished(self, position: Position) -> bool:
        """Whether `release(position)` would release something, once a commit has recorded it."""
        return self._ends.finished(position)

    def release(self, position: Position) -> tuple[int, ...]:
        """Delete, or archive, finished segments at or below a *committed* position; their ids. Idempotent.

        Raises ServiceError where a file cannot go.
        """
        done = self._ends.releasable(position)
        with self._lock:
            present = {files.id: files for files in list_both(self._directory, self._spool).segments} if done else {}
            try:
                for segment in done:
                    self._ends.release(present.get(segment, SegmentFiles(segment, None, None)))
                    self._candidates.forget(segment)
                    self._recovery.released(segment)
                for id, files in present.items():
                    if id < position.segment:
                        self._ends.sweep(files)
            except OSError as error:
                raise self._refused(self._verb, error) from error
        return done

    def reread(self, epoch: int, segment: int, checksum: int, offsets: Collection[int]) -> Iterator[Entry]:
        """Mutations of a segment once more; see segment.entries_at. Raises ServiceError, SettingsError."""
        try:
            with self._lock:  # between the listing and the opening nothing is moved
                path = next((files.log for files in self._listings.take().segments if files.id == segment), None)
                if path is None or header_checksum(path) != checksum:
                    return
                opened = OpenSegment(path, segment, epoch, 0, self._keys)
            yield from entries_at(opened, offsets, opened=self._opened)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refused("read", error) from error

    def may_hold(self, table_id: UUID, after: Position, until: Position) -> bool:
        """Whether a mutation behind one place, up to another, may have a change of a table. It may where a file is
        gone. Raises ServiceError."""
        span = range(after.segment, until.segment + 1)
        with self._lock:
            logs = {files.id: files.log for files in self._listings.take().segments if files.id in span and files.log}
        expected = {after.segment, *(id for id, _ in self.open_segments() if id in span)}
        if after.epoch != self._epoch or not expected <= logs.keys():
            return True
        try:
            opened = (OpenSegment(log, id, self._epoch, 0, self._keys) for id, log in sorted(logs.items()))
            return any(holds_table(segment, table_id.bytes, after, until) for segment in opened)
        except FileNotFoundError:
            return True
        except OSError as error:
            raise self._refused("read", error) from error

    def _refused(self, verb: str, error: OSError) -> ServiceError:
        file = error.filename or (self._directory if self._current is None else self._current.file.path)
        return ServiceError(
            f"cannot {verb} {file}: {error.strerror}; let this user {verb} it (run the agent as Cassandra's user), or "
            "move a broken file and its index away. Nothing from it on is published or released until then"
        )

    def quarantine(self, position: Position, error: DecodeError) -> None:
        """Read the segment no further: `position` is its last good mutation. Its files stay; others go on.

        Raises ServiceError where they cannot be kept.
        """
        self._save(frozenset({position.segment}))
        if self._current is not None and self._current.file.id == position.segment:
            self._close_current()
        self._ends.quarantine(position, error)

    def close(self) -> None:
        """Close every file."""
        self._close_current()
        self._ends.close()

    def _close_current(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None

    def _finish(self, current: CurrentSegment, error: DecodeError | None) -> None:
        """The end of a final segment, clean or broken."""
        segment = current.file
        if current.recovery is not None:
            self._finish_recovered(segment, current.recovery.upto, error)
            return
        if error is not None and not current.is_torn:
            self.quarantine(segment.position, error)
            if not segment.position.offset:
                self._at = self._previous  # perhaps no segment at all: what comes later may have a smaller id
            return
        if error is not None:
            # What stands behind the index of a torn segment was never replayed either.
            _LOG.warning(
                "segment %d has no valid data after its CDC index offset; its reading ends there: %s", segment.id, error
            )
        elif self._early and segment.position.offset > segment.logical:
            self._register.retract(Position(self._epoch, segment.id, segment.logical), segment.position)
        unindexed = self._early and not self._candidates.is_indexed(segment.id)
        if unindexed:
            self._ahead.unindexed.add(segment.id)
        self._ends.end(segment.id, None if unindexed else segment.position)
        self._close_current()

    def _finish_recovered(self, segment: OpenSegment, upto: Position, error: DecodeError | None) -> None:
        if error is not None:
            _LOG.error(
                "segment %d has no index and cannot be read after %s; its rest is reported as lost: %s",
                segment.id,
                self._at,
                error,
            )
            self._register.lose(segment.id, self._at)
        self._ends.end(segment.id, upto)
        self._close_current()

    def _open_next(self) -> CurrentSegment | None:
        files = self._candidates.next(self._at.segment)
        if files is None:
            return None
        id, recovered = files.id, self._candidates.is_recovered(files)
        start_offset = self._at.offset if id == self._at.segment else 0
        recovery = None
        try:
            segment = self._recovery.open(id, start_offset) if recovered else None
            if segment is not None:
                recovery = self._recovery
            elif files.log is not None:
                segment = OpenSegment(files.log, id, self._epoch, start_offset, self._keys)
        except FileNotFoundError:
            segment = None
        if segment is None:
            self._scan()  # moved, or lost
            return self._open_next()
        current = CurrentSegment(segment, self._candidates, recovery, early=self._early)
        self._previous, self._current, self._at = self._at, current, segment.position
        self._ends.begin(id)
        if files.index is not None or recovered:
            self._register.opened(id)
        self._ahead.opened(id)
        self._candidates.note(id)
        _LOG.info("reading segment %d", id)
        return current

    def _scan(self) -> None:
        self._candidates.scan(self._listings.take(), self._at, -1 if self._current is None else self._current.file.id)


class Signal:
    """Set from any thread, or from a signal handler; one waiter.

    The condition's lock is reentrant, because a handler runs in the waiter's own thread, perhaps while that holds it.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.RLock())
        self._set = False

    def set(self) -> None:
        """Something happened: the wait that runs, or the next one, returns at once."""
        with self._condition:
            self._set = True
            self._condition.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until set, at most `seconds`; the signal is consumed. Whether it was set."""
        with self._condition:
            self._condition.wait_for(lambda: self._set, timeout=max(0.0, seconds))
            was, self._set = self._set, False
            return was


class _Hint(FileSystemEventHandler):
    def __init__(self, signal: Signal, appeared: Callable[[Path], None], indexed: Callable[[Path], None]) -> None:
        self._signal = signal
        self._appeared = appeared
        self._indexed = indexed

    def on_any_event(self, event: FileSystemEvent) -> None:
        # Only an index releases bytes. The logs change all the time and say nothing by it, but that they are there.
        path = str(event.src_path)
        if event.event_type == "created" and path.endswith(".log"):
            self._appeared(Path(path))
            self._signal.set()
        elif event.event_type in _KINDS and path.endswith(".idx"):
            self._indexed(Path(path))
            self._signal.set()


class Watch(Closing):
    """A running observer of one directory. Without notification (inotify's limits) the caller's poll has to do.

    `appeared` is called with each new log, `indexed` with an index at each event of it, in the observer's thread. Both
    files may be gone by then.
    """

    def __init__(
        self,
        directory: Path,
        signal: Signal,
        appeared: Callable[[Path], None] = lambda _: None,
        indexed: Callable[[Path], None] = lambda _: None,
    ) -> None:
        self._observer = Observer()
        try:
            self._observer.schedule(_Hint(signal, appeared, indexed), str(directory), recursive=False)
            self._observer.start()
        except OSError as error:
            _LOG.warning("no file notification for %s (%s): new segments are noticed by polling only", directory, error)

    def close(self) -> None:
        """End the observer's threads."""
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join()
