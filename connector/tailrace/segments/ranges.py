"""Positions in a node's log, as commands take them: SEGMENT or SEGMENT:OFFSET."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tailrace_schemas.errors import SettingsError

# As Position's text has it, the log epoch in front; a node's files are all of one.
_POSITION: Final = re.compile(r"(?:\d{1,9}/)?(\d{1,19})(?::(\d{1,10}))?", re.ASCII)
_SEGMENT_END: Final = 1 << 31

METAVAR: Final = "SEGMENT[:OFFSET]"


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Mutations behind `since` up to and including `until`: (segment id, logical position behind a mutation)."""

    since: tuple[int, int] = (-1, 0)
    until: tuple[int, int] = ((1 << 63) - 1, _SEGMENT_END)

    def touches(self, segment: int) -> bool:
        """Whether a mutation of this segment may be in it."""
        return self.since[0] <= segment <= self.until[0]


def stretch_of(since: str | None, until: str | None) -> SegmentRange:
    """The stretch between two positions; a segment alone stands for its beginning, or its end. Raises SettingsError."""
    unbounded = SegmentRange()
    stretch = SegmentRange(
        unbounded.since if since is None else _position("--since", since, 0),
        unbounded.until if until is None else _position("--until", until, _SEGMENT_END),
    )
    if stretch.since >= stretch.until:
        raise SettingsError(f"nothing can be behind --since {since} and not behind --until {until}")
    return stretch


def _position(option: str, text: str, offset: int) -> tuple[int, int]:
    match = _POSITION.fullmatch(text)
    if match is None:
        raise SettingsError(f"{option} {text}: a position is {METAVAR}, such as 1795246977430:560288")
    return int(match[1]), offset if match[2] is None else int(match[2])
