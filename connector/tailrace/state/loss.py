"""Changes that are missing for good, or may be: what the agent reports of segments that vanished."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tailrace.state.spans import Span
from tailrace_schemas.position import Position


class Missing(StrEnum):
    """Why segments count as missing; what is neither lost nor unknown is empty, and silent. What was retracted was
    published, and the node has lost it."""

    LOST = "lost"
    UNKNOWN = "unknown"
    RETRACTED = "retracted"


@dataclass(frozen=True, slots=True)
class Loss:
    """Changes that are missing for good, or may be: all behind `first`, before `until`; retracted ones up to it."""

    kind: Missing
    segments: Span
    first: Position
    until: Position

    def __str__(self) -> str:
        a, b = self.segments
        if self.kind is Missing.RETRACTED:
            return (
                f"segment {a}: the node has lost in a crash what was published ahead of its flush, behind {self.first} "
                f"up to {self.until}; those changes are retracted"
            )
        names = f"segment {a}" if a == b else f"segments {a} to {b}"
        verdict = (
            f"{names} had changes to publish, and vanished unread: lost is"
            if self.kind is Missing.LOST
            else f"{names} are gone, nobody watched, and Cassandra or another agent may have deleted unread ones: "
            "perhaps lost is"
        )
        return f"{verdict} what stood behind {self.first}, before {self.until}"
