"""Open files of segments, so that they can be read after Cassandra has deleted them."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import BinaryIO, Final

from tailrace.segments.directory import SegmentFiles, pair
from tailrace.segments.unindexed import Unindexed

_LOG: Final = logging.getLogger("tailrace.capture")
# Deleted files take disk space for as long as they are open: 2 GiB by default. Beyond, the oldest become a gap.
_MOST_KEPT: Final = 64
# Those that still have a name cost a descriptor each.
_MOST_OPEN: Final = 192


class KeptSegments:
    """Open files of segments, so that they can be read after Cassandra has deleted them. `keep` from any thread.

    At most 64 deleted ones, which matters where the agent waits for Kafka's first answer; in all other waits they are
    read. `unindexed` keeps them too, for their changes.
    """

    def __init__(self, unindexed: Unindexed | None = None) -> None:
        self.unindexed = unindexed or Unindexed()
        self._lock = threading.Lock()
        self._files: dict[int, BinaryIO] = {}
        self._paths: dict[int, Path] = {}
        self._next = -1

    def keep(self, path: Path) -> None:
        """Open a segment that has appeared; other files, known segments, and those that are gone are passed over."""
        (files,) = pair(path.parent, [path.name]).segments or (SegmentFiles(-1, None, None),)
        with self._lock:
            if files.log is None or files.id < self._next or files.id in self._files:
                return
            try:
                self._files[files.id], self._paths[files.id] = path.open("rb"), path
            except OSError as error:
                _LOG.debug("%s is gone before it could be opened: %s", path, error)
                return
            self.unindexed.keep(files.id, path, self._files[files.id].fileno())
            deleted = [id for id, file in sorted(self._files.items()) if os.fstat(file.fileno()).st_nlink == 0]
            excess = max(len(self._files) - _MOST_OPEN, 0)
            for id in {*deleted[: 1 - _MOST_KEPT], *sorted(self._files)[:excess]}:
                self._drop(id)

    def paths(self) -> dict[int, Path]:
        """The segments that are kept."""
        with self._lock:
            return dict(self._paths)

    def gone_behind(self, segment: int) -> bool:
        """Whether a later segment was begun and deleted meanwhile."""
        with self._lock:
            return any(os.fstat(file.fileno()).st_nlink == 0 for id, file in self._files.items() if id > segment)

    def take(self, segment: int) -> BinaryIO | None:
        """The open file of a segment, which is the taker's from now on; segments before it are let go."""
        with self._lock:
            file = self._files.pop(segment, None)
            self._paths.pop(segment, None)
            self._next = segment + 1
            for id in [id for id in self._files if id < segment]:
                self._drop(id)
            return file

    def close(self) -> None:
        """Close every file."""
        with self._lock:
            for id in list(self._files):
                self._drop(id)
        self.unindexed.close()

    def _drop(self, segment: int) -> None:
        self._files.pop(segment).close()
        del self._paths[segment]
