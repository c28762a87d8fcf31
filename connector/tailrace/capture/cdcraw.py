"""cdc_raw as one ordered sequence: released mutations of all segments by position, finished segments released.

Rests on the order in which Cassandra's sync thread works: segments by id, and a segment's COMPLETED before any later
segment's index. So once a later segment has an index, an earlier one is final, and without index it has no cdc data.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailrace.capture.directory import SegmentFiles, list_cdc_raw
from tailrace.capture.index import Index, advance, parse_index
from tailrace.capture.ledger import Ledger, SegmentKey
from tailrace.capture.parked import Parked
from tailrace.capture.segment import OpenSegment, header_checksum
from tailrace.commitlog.encryption import NO_KEYS, Keys
from tailrace.commitlog.entry import Entry
from tailrace.errors import LogEpochError, MissingKeyError, WrongKeyError
from tailrace.position import Position
from tailrace_schemas.errors import DecodeError, ServiceError, SettingsError

_LOG: Final = logging.getLogger("tailrace.capture")
FIRST_EPOCH: Final = 1
_REREAD: Final = 256


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A segment that is read no further: id, header checksum, position of its last good mutation, and why."""

    segment: int
    checksum: int
    offset: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where reading starts, from the offsets record: behind `position` (None: at the oldest segment there is).

    `open` and `quarantined` are the record's; Ledger and contracts.md 1 say what they are for. `schema` is the place up
    to which all segments were read for DDL, at or ahead of the position (None: nowhere yet). `parked` are mutations at
    or below the position whose changes wait.
    """

    position: Position | None = None
    open: tuple[SegmentKey, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    schema: Position | None = None
    parked: tuple[Parked, ...] = ()


class CdcRaw:
    """Reads one directory. Not thread-safe. Files may vanish at any time, by Cassandra's hand or ours.

    `keys` open encrypted segments.
    """

    def __init__(self, directory: Path, resume: Resume, keys: Keys = NO_KEYS) -> None:
        self._directory = directory
        self._keys = keys
        self._opened = False  # an encrypted segment, by the keys
        self._at = resume.position or Position(FIRST_EPOCH, -1, 0)
        self._epoch = self._at.epoch
        self._ledger = Ledger(released=dict(resume.open))
        self._segments: dict[int, SegmentFiles] = {}
        self._indexed: frozenset[int] = frozenset()
        self._finished: dict[int, Position] = {}
        self._current: OpenSegment | None = None
        self._index: Index | None = None
        self._foreign: frozenset[str] = frozenset()
        self.quarantined: dict[int, Quarantined] = {q.segment: q for q in resume.quarantined}
        self._kept: frozenset[int] = frozenset()
        self.lost: dict[int, str] = {}
        """Segments that had an index and vanished unread, for people."""

    def read(self, limit: int) -> list[Entry]:
        """The next released entries in position order, at most `limit`; none when nothing is released now.

        A broken segment is quarantined once it is final, and reading goes on with the next one. Raises ServiceError
        when the directory or a file cannot be read, LogEpochError for a segment of another log (contracts.md 1),
        SettingsError where the keys open no encrypted segment: then all of them would end in quarantine.
        """
        try:
            return self._read(limit)
        except OSError as error:
            raise self._refused("read", error) from error

    def _read(self, limit: int) -> list[Entry]:
        while True:
            if self._current is None or not self._is_final(self._current):
                self._scan()
            segment = self._current or self._open_next()
            if segment is None:
                return []
            # The index and finality are judged before the bytes are read: what they promise is there by then.
            self._read_index(segment)
            final = self._is_final(segment)
            entries, error = segment.read(limit, None if final else self._released())
            self._at = segment.position
            if entries:
                self._opened |= segment.encrypted
                return entries
            self._check_keys(error)
            if not final:
                return []
            self._finish(segment, error)

    def open_segments(self) -> tuple[SegmentKey, ...]:
        """Every segment that was read or passed over and may still be found: `open` of the offsets record."""
        return self._ledger.keys()

    def finished(self, position: Position) -> bool:
        """Whether `release(position)` would delete something."""
        return any(end <= position for id, end in self._finished.items() if id not in self._kept)

    def release(self, position: Position) -> tuple[int, ...]:
        """Delete the files of finished segments at or below a *committed* position; their ids. Idempotent.

        Raises ServiceError where a file cannot be deleted.
        """
        ended = (segment for segment, end in self._finished.items() if end <= position)
        done = tuple(sorted(segment for segment in ended if segment not in self._kept))
        for segment in done:
            try:
                self._ledger.release(self._segments.get(segment, SegmentFiles(segment, None, None)))
            except OSError as error:
                raise self._refused("delete", error) from error
            self._segments.pop(segment, None)
            del self._finished[segment]
        return done

    def keep(self, segments: frozenset[int]) -> None:
        """Delete none of these, until other ones are named."""
        self._kept = segments

    def reread(self, epoch: int, segment: int, checksum: int, offsets: Collection[int]) -> Iterator[Entry]:
        """Mutations of a segment once more, those that end at these offsets, in order; fewer where it is gone, is
        another one than before, or is damaged. Raises ServiceError."""
        wanted = set(offsets)
        path = next((files.log for files in self._list() if files.id == segment), None)
        try:
            if path is None or header_checksum(path) != checksum:
                return
            with closing(OpenSegment(path, segment, epoch, 0, self._keys)) as again:
                while wanted and (entries := again.read(_REREAD, None)[0]):
                    for entry in entries:
                        if entry.position.offset in wanted:
                            wanted.discard(entry.position.offset)
                            yield entry
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refused("read", error) from error

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
        _LOG.error("segment %d quarantined behind %d: %s", segment, position.offset, error)

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
        try:
            read = parse_index(files.index.read_bytes())
        except FileNotFoundError:
            return
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(files.index)) from error
        if read is not None and self._index is not None and read.offset < self._index.offset and not read.completed:
            _LOG.warning("the index of segment %d went from %d to %d", segment.id, self._index.offset, read.offset)
        self._index = advance(self._index, read)

    def _is_final(self, segment: OpenSegment) -> bool:
        if any(files.index is not None for id, files in self._segments.items() if id > segment.id):
            return True
        if self._index is not None and self._index.completed:
            return True
        return segment.unlinked_by_cassandra

    def _check_keys(self, error: DecodeError | None) -> None:
        """Raise SettingsError for keys that cannot be right, as far as is known."""
        if isinstance(error, MissingKeyError):
            raise SettingsError(f"{error}: set agent.keystore, or agent.segment_key")
        if isinstance(error, WrongKeyError) and not self._opened:
            raise SettingsError(
                f"{error}. Nothing was read yet that says which: see agent.keystore and agent.segment_key. If they "
                "are right, move this file and its index away: the rest can be published then"
            )

    def _finish(self, segment: OpenSegment, error: DecodeError | None) -> None:
        """The end of a final segment, clean or broken."""
        torn = self._index is not None and not self._index.completed and segment.logical >= self._index.offset
        if error is not None and not torn:
            self.quarantine(segment.position, error)
            return
        if error is not None:
            # A process that died in the middle of a write: what stands behind the index was never replayed either.
            _LOG.warning("segment %d ends at its index, behind it nothing is whole: %s", segment.id, error)
        self._finished[segment.id] = segment.position
        self._close_current()

    def _open_next(self) -> OpenSegment | None:
        for id, files in sorted(self._segments.items()):
            if id < self._at.segment or id in self._finished or id in self.quarantined or files.index is None:
                continue
            if files.log is None:
                self._lose(id)
                continue
            after = self._at.offset if id == self._at.segment else 0
            try:
                segment = OpenSegment(files.log, id, self._epoch, after, self._keys)
            except FileNotFoundError:
                self._lose(id)
                continue
            self._current, self._at = segment, segment.position
            self._pass_over(id)
            _LOG.info("reading segment %d", id)
            return segment
        return None

    def _pass_over(self, reached: int) -> None:
        for id, files in self._segments.items():
            if id <= reached and files.log is not None:
                self._ledger.note(id, files.log)

    def _lose(self, segment: int) -> None:
        if segment not in self.lost:
            self.lost[segment] = f"segment {segment} was released by its index, but is gone unread: changes lost"
            _LOG.error("%s", self.lost[segment])

    def _scan(self) -> None:
        segments = self._list()
        present = {files.id: files for files in segments}
        self._ledger.forget_missing(frozenset(id for id, files in present.items() if files.log is not None))
        for id, files in self._segments.items():
            unread = id > self._at.segment and id not in self.quarantined
            if unread and files.index is not None and id not in present:
                self._lose(id)
        for files in segments:
            if files.id <= self._at.segment and files.id not in self._segments:
                self._judge_old(files)
        self._segments = present

    def _list(self) -> tuple[SegmentFiles, ...]:
        """The directory's segments at an instant when no index is missing that is older than one seen.

        A listing is no snapshot: one that shows a new index may miss an older one, created just before it.
        """
        while True:
            listing = list_cdc_raw(self._directory)
            indexed = frozenset(files.id for files in listing.segments if files.index is not None)
            stable, self._indexed = indexed <= self._indexed, indexed
            if stable:
                self._warn_foreign(listing.foreign)
                return listing.segments

    def _warn_foreign(self, names: Iterable[str]) -> None:
        new = frozenset(names) - self._foreign
        if new:
            _LOG.warning("%s: not Cassandra's, left alone: %s", self._directory, ", ".join(sorted(new)))
        self._foreign |= new

    def _judge_old(self, files: SegmentFiles) -> None:
        """A segment that appears at or below the place reached: known from before, or of another log."""
        id = files.id
        read = id < self._at.segment and files.index is not None and id not in self.quarantined
        if files.log is None:
            # What a release left that was cut off between its two deletions.
            if read and files.index is not None:
                files.index.unlink(missing_ok=True)
            return
        if not self._ledger.knows(id, files.log):
            raise LogEpochError(files.name, str(self._at))
        self._ledger.note(id, files.log)
        if read:
            self._finished[id] = Position(self._epoch, id, 0)
