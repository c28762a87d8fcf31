"""The log's DDL and truncations: such mutations of every linked segment, index or not, before Cassandra deletes it.

A segment without cdc data never has an index, and is gone within a second of its end (DROP TABLE ends it at once). So
it is opened when it appears and read up to its last valid marker. That runs ahead of what the index releases, which
does no harm: a definition holds from its DDL's position on. Rests on the order of Cassandra's sync thread: a segment's
last marker stands before any later segment has its first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.commitlog.frames import Entry
from tailrace.retention.spool import Spool, list_both
from tailrace.segments.files import Index, SegmentFiles
from tailrace.segments.kept import Interest, KeptSegments
from tailrace.segments.open_segment import OpenSegment, index_of, is_final, require_keys
from tailrace.state import FIRST_EPOCH
from tailrace_schemas.errors import DecodeError, ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.system_tables import system_tables

_LOG: Final = logging.getLogger("tailrace.capture")
WATCHED: Final = tuple(
    table
    for table in system_tables()
    if table.keyspace == "system_schema" or str(table) in ("system.local", "system.local_metadata_log")
)
"""The tables of DDL; of truncations, and of the metadata's epoch (6.0), in `system.local`; of the epoch's steps."""
_IDS: Final = frozenset(table.id.bytes for table in WATCHED)
# What is read ahead of the changes in one go: enough to stay ahead, and not so much that they wait.
_READ_BYTES: Final = 2 << 20
# So many batches of changes come between two looks for what is behind them.
_PAUSE: Final = 32


@dataclass(frozen=True, slots=True)
class Gap:
    """Segments that were gone, or could not be read, before they were read for DDL: behind `after`, before `until`.

    `written` is about when the log went on behind them, in microseconds; None where that is not known.
    """

    after: Position
    until: Position
    written: int | None = None


class SchemaLog:
    """Reads one directory for DDL, and the spool with it. Not thread-safe, but for what `kept` says.

    `keys` open encrypted segments.

    `begin` says where. Segments without an index are held open from when they are seen until they are read.
    """

    def __init__(
        self, directory: Path, kept_segments: KeptSegments, keys: Keys = NO_KEYS, spool: Spool | None = None
    ) -> None:
        self._directory = directory
        self._spool = spool
        self._lock: AbstractContextManager[object] = nullcontext() if spool is None else spool.lock
        self._kept = kept_segments
        self._keys = keys
        self._epoch = FIRST_EPOCH
        self._at: Position | None = None
        self._current: OpenSegment | None = None
        self._final = False
        self._whole = True
        self._opened = False  # an encrypted segment, by the keys
        self._files: dict[int, SegmentFiles] = {}
        self._gap: Gap | None = None
        self._pause = 0
        self.gaps: list[Gap] = []
        """What could not be read, oldest first; the reader of this list takes them out."""
        self.began: int | None = None
        """About when the first segment that was read begins (microseconds); None while that is not known."""

    def begin(self, position: Position | None, epoch: int) -> None:
        """Read on behind a position; None: from the oldest segment there is."""
        self._at, self._epoch = position, epoch

    @property
    def read_up_to(self) -> Position | None:
        """Up to where everything was read, as far as it could be; offset 0: nothing of that segment yet."""
        return self._at

    def read(self, until: Position | None) -> list[Entry]:
        """The next DDL mutations, in position order. Raises ServiceError, and SettingsError for wrong keys.

        Changes up to `until`, which the index has released, wait for their DDL. All up to there are read then, and of
        about 2 MiB of log behind it; without `until` all. Where the log was read up to there before, only some calls
        look for more, as the waiting changes have priority.
        """
        entries: list[Entry] = []
        if until is not None and self._at is not None and until <= self._at and self._pause:
            self._pause -= 1
            return entries
        self._pause = _PAUSE
        while (segment := self._current or self._open_next()) is not None:
            start = segment.position
            selected, error = segment.select(_IDS, _READ_BYTES)
            entries += selected
            self._opened |= segment.encrypted and segment.position > start
            if self.began is None and segment.position.offset:
                self.began = segment.began()
            if self._gap is not None and segment.position.offset:
                self.gaps.append(replace(self._gap, written=segment.began()))
                self._gap = None
            self._at = segment.position
            if not segment.ended and error is None:
                if until is not None and self._at >= until:
                    break
            elif self._final:
                require_keys(error, opened=self._opened)
                self._finish(segment, error or segment.missing_end(self._index(segment.id)))
            else:
                # Finality is judged before the last read: what it promises is there by then.
                self._list()
                self._final = self._kept.gone_behind(segment.id) or is_final(
                    segment, self._index(segment.id), self._files, self._keys, early=True
                )
                if not self._final:
                    break
        return entries

    def sift(self, interest: Callable[[], Interest]) -> None:
        """Forget the segments without an index that were read and hold nothing of interest.

        `interest` is that after all DDL that was read so far.
        """
        if self._at is not None:
            self._kept.unindexed.sift(interest, self._at)

    def close(self) -> None:
        """Close every file."""
        if self._current is not None:
            self._current.close()
            self._current = None
        self._kept.close()

    def _open_next(self) -> OpenSegment | None:
        with self._lock:  # between the listing and the opening nothing is moved
            return self._next()

    def _next(self) -> OpenSegment | None:
        """The oldest segment at or behind the position of reading."""
        self._list()
        reached = self._at
        paths = self._kept.paths() | {id: files.log for id, files in self._files.items() if files.log is not None}
        for id, path in sorted(paths.items()):
            if reached is not None and id < reached.segment:
                continue
            start_offset = reached.offset if reached is not None and id == reached.segment else 0
            try:
                self._current = OpenSegment(path, id, self._epoch, start_offset, self._keys, self._kept.take(id))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise ServiceError(f"cannot read {path}: {error.strerror}; may this user read it?") from error
            if reached is not None and (id != reached.segment or not self._whole):
                self._gap = Gap(reached if self._gap is None else self._gap.after, Position(self._epoch, id, 0))
            self._final, self._whole = False, True
            return self._current
        return None

    def _finish(self, segment: OpenSegment, error: DecodeError | None) -> None:
        """A final segment was read to its end: reading goes on at the beginning of the one with the next number."""
        if error is not None:
            self._whole = False
            _LOG.warning(
                "DDL after %s cannot be read; definitions are taken from the cluster instead: %s",
                segment.position,
                error,
            )
        segment.close()
        self._current = None
        self._at = Position(self._epoch, segment.id + 1, 0)

    def _index(self, segment: int) -> Index | None:
        files = self._files.get(segment)
        try:
            return None if files is None else index_of(files)
        except OSError:
            return None

    def _list(self) -> None:
        segments = list_both(self._directory, self._spool).segments
        self._files = {files.id: files for files in segments}
        self._kept.unindexed.indexed(
            [files.id for files in segments if files.log is not None and files.index is not None]
        )
        for files in segments:
            # One with an index stays until it is released, and that comes behind its reading.
            if files.log is not None and files.index is None:
                self._kept.keep(files.log)
