"""Reads segments that hold changes and never got an index, from their open files (segments.kept).

Segments that another process deleted from cdc_raw are read from the commit log, where Cassandra still has them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tailrace.commitlog.blocks import Keys
from tailrace.commitlog.frames import Entry
from tailrace.retention.missing import Register
from tailrace.retention.spool import Spool
from tailrace.segments.files import Listing, SegmentFiles, list_segments
from tailrace.segments.kept import KeptSegments
from tailrace.segments.open_segment import OpenSegment, has_begun, is_genuine
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.capture")
_READ_BYTES: Final = 8 << 20
# So many of the commit log's files are open at a time.
_LOT: Final = 64


class Recovery:
    """What one reader does with such segments, one at a time. Without `kept` there are none.

    `commitlog` says where the commit log's own directory is, None where that is unknown.
    """

    def __init__(
        self, kept_segments: KeptSegments | None, epoch: int, commitlog: Callable[[], Path | None], keys: Keys
    ) -> None:
        self._kept = kept_segments
        self._unindexed = None if kept_segments is None else kept_segments.unindexed
        self._epoch = epoch
        self._commitlog = commitlog
        self._keys = keys
        self._looked = False
        self._taken: set[int] = set()
        self._waiting = frozenset[int]()  # segments of the commit log's that are not open yet
        self.upto = Position(epoch, -1, 0)
        """Up to where mutations of the segment that is read now were handed out."""

    @property
    def holding(self) -> frozenset[int]:
        """Segments without an index that hold changes."""
        return frozenset() if self._unindexed is None else self._unindexed.holding

    @property
    def at_hand(self) -> frozenset[int]:
        """Segments that cdc_raw need not have: their file is open, whatever they hold, or is to be opened in the commit
        log."""
        return self._open_files | self._waiting

    @property
    def _open_files(self) -> frozenset[int]:
        return frozenset() if self._unindexed is None else self._unindexed.segments

    def look(self, listing: Listing, read_up_to: int, register: Register, quarantined: Collection[int]) -> None:
        """Keep the segments behind `read_up_to` that cdc_raw has no longer and the commit log still has.

        They are looked for once, and wherever an index is known whose segment is missing. A new host (-1) misses
        nothing.
        """
        due = not self._looked or self._waiting or register.misses(listing, read_up_to)
        if self._kept is None or read_up_to < 0 or not due:
            return
        self._looked = True
        present = {files.id for files in listing.segments if files.log is not None}
        present |= {*quarantined, *self._open_files, *self._taken}
        reported = register.reported(read_up_to)
        commitlog = self._commitlog()
        logs = () if commitlog is None else only_logged(commitlog, present, read_up_to, self._keys)
        missing = [(id, path) for id, path in logs if not any(first <= id <= last for first, last in reported)]
        room = max(0, _LOT - len(self._taken & self._open_files))
        self._waiting = frozenset(id for id, _ in missing[room:])
        for id, path in missing[:room]:
            _LOG.warning("segment %d was deleted from cdc_raw; reading it from the commit log: %s", id, path)
            self._taken.add(id)
            self._kept.keep(path)
            with suppress(FileNotFoundError), path.open("rb") as file:  # its DDL may have been read before
                self._kept.unindexed.keep(id, path, file.fileno())

    def judged(self, segment: int) -> bool:
        """Whether it is known of all segments before this one whether they hold changes."""
        if any(id < segment for id in self._waiting):
            return False
        return self._unindexed is None or self._unindexed.judged(segment)

    def applies(self, files: SegmentFiles, segments: Mapping[int, SegmentFiles], *, early: bool) -> bool:
        """Whether a segment holds changes and gets no index any more. Its log is gone, whatever its index says; or a
        later one of `segments` has its index. Early mode reads what still stands by itself."""
        if files.id not in self.holding or files.log is None:
            return files.id in self.holding
        later = (successor for id, successor in segments.items() if id > files.id and successor.index is not None)
        return files.index is None and not early and any(is_genuine(successor) for successor in later)

    def open(self, segment: int, offset: int) -> OpenSegment | None:
        """Open a segment of `holding`, to be read behind an offset."""
        if self._unindexed is None:
            return None
        _LOG.warning("segment %d holds changes and has no index, or is deleted: read from its open file", segment)
        self.upto = Position(self._epoch, segment, 0)
        return self._unindexed.open(segment, self._epoch, offset)

    def read(self, segment: OpenSegment) -> tuple[list[Entry], DecodeError | None]:
        """Its next mutations of tables with changes, and what broke behind them."""
        tables = frozenset[bytes]() if self._unindexed is None else self._unindexed.interest.tables
        entries, error = segment.select(tables, _READ_BYTES)
        if entries:
            self.upto = entries[-1].position
        return entries, error

    def save(self, segments: Collection[int], spool: Spool) -> Iterator[tuple[int, Path]]:
        """Put those of some segments that have no index into the spool, and say where. Raises ServiceError."""
        files = {} if self._unindexed is None else self._unindexed.files(segments)
        for segment, (path, descriptor) in files.items():
            yield segment, spool.save(path.name, descriptor)

    def forget(self, until: int) -> None:
        """Segments before this one are published."""
        if self._unindexed is not None:
            self._unindexed.forget(until)

    def released(self, segment: int) -> None:
        """All of this one is published, whether or not its index was ever seen."""
        if self._unindexed is not None:
            self._unindexed.released(segment)


def only_logged(commitlog: Path, present: Collection[int], read_up_to: int, keys: Keys) -> tuple[tuple[int, Path], ...]:
    """The finished segments behind `read_up_to` that the commit log has, and that are not `present` elsewhere, by id.

    None where it cannot be listed. Cassandra links each to cdc_raw for as long as it has it, unless cdc_raw is full.
    """
    try:
        logs = {files.id: files.log for files in list_segments(commitlog).segments if files.log is not None}
    except OSError:
        return ()
    newest = next(
        (id for id in sorted(logs, reverse=True) if id > read_up_to and has_begun(logs[id], keys)), read_up_to
    )
    return tuple((id, logs[id]) for id in sorted(logs) if read_up_to < id < newest and id not in present)


def is_commitlog_of(commitlog: Path, cdc_raw: Path) -> bool:
    """Whether a directory has the files that cdc_raw has links of."""
    try:
        names = [path.name for path in cdc_raw.glob("CommitLog-*.log")]
        return any((commitlog / name).samefile(cdc_raw / name) for name in names if (commitlog / name).exists())
    except OSError:
        return False
