"""Which segments are known to this host: linked, released while Cassandra still holds them, quarantined.

This is `open` of the offsets record (docs/contracts.md section 1). A segment that is not in it was never read, even at
or below the position. A host id can come back with another disk.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tailrace.retention.release import DELETED, Release
from tailrace.segments.directory import SegmentFiles
from tailrace.segments.open_segment import header_checksum
from tailrace.state import SegmentKey

_LOG: Final = logging.getLogger("tailrace.capture")
# Where nobody says how many the log can hold: as many as commitlog_total_space takes by default, 8 GiB of 32 MiB each.
REMEMBERED: Final = 256
_MOST_OPEN: Final = 256


@dataclass(slots=True)
class Ledger:
    """Mutable; one per reader.

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
