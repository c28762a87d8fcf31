"""The segment that is read now: how far it is released, and whether it is final."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.capture.candidates import Candidates
from tailrace.capture.recovery import Recovery
from tailrace.commitlog.entry import Entry
from tailrace.segments.index import Index, advance
from tailrace.segments.open_segment import OpenSegment
from tailrace_schemas.errors import DecodeError

_LOG: Final = logging.getLogger("tailrace.capture")


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
        return self.file.read(limit, None if final or self._early else released)

    def close(self) -> None:
        """Close its file."""
        self.file.close()
