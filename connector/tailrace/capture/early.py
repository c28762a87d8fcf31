"""Early mode: which segments were read ahead of their index, and what of them is durable by now.

Cassandra chains its sync markers about every 100 ms, in the page cache. It writes the index when it has flushed them,
by default every 10 s. What lies between is lost if the machine dies, not if the process does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tailrace.segments.directory import SegmentFiles
from tailrace.segments.index import Index
from tailrace.segments.open_segment import is_genuine
from tailrace_schemas.position import Position


class Ahead:
    """Mutable. `read_index` reads an index, None for what says nothing (yet)."""

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
