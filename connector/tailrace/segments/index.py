"""What a segment's `_cdc.idx` says: the logical offset up to which its bytes are released, and whether it is closed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# No trailing newline (CommitLogSegment.writeCDCIndexFile); one is taken all the same, for files restored by hand.
_CONTENT: Final = re.compile(rb"([0-9]{1,19})(?:\n(COMPLETED)?.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Index:
    """The content of an index. With `completed` the offset means nothing: read to the segment's end marker.

    After a crash Cassandra writes the physical file length there (CommitLogReplayer.handleCDCReplayCompletion).
    """

    offset: int
    completed: bool = False


def parse_index(content: bytes) -> Index | None:
    """The index, or None for what says nothing yet: Cassandra rewrites the file in place, so it can be seen empty.

    A prefix of the digits parses as a smaller offset, which `advance` makes harmless; `COMPLETED` counts only whole.
    """
    match = _CONTENT.fullmatch(content)
    return None if match is None else Index(int(match[1]), match[2] is not None)


def advance(index: Index | None, read: Index | None) -> Index | None:
    """What is known after one more read: an offset never goes back, and a closed segment stays closed."""
    if index is None or read is None:
        return read if index is None else index
    return Index(max(index.offset, read.offset), index.completed or read.completed)
