"""What an agent's health says of the ring and its generations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final


class RingState(StrEnum):
    """How the ring that this node sees stands to the latest generation."""

    UNKNOWN = "unknown"
    """It could not be read."""
    CHANGING = "changing"
    """A node joins, leaves or moves."""
    SETTLING = "settling"
    """It is another than the generation's, and has not been so for long enough."""
    DUE = "due"
    """It is another, and is proposed now."""
    COVERED = "covered"
    """The latest generation was made from it."""


NOTHING: Final = "nothing"
_MEANINGS: Final = {
    RingState.UNKNOWN: "the ring could not be read",
    RingState.CHANGING: "the ring is changing",
    RingState.SETTLING: "the ring has changed a moment ago",
    RingState.DUE: "the ring has no generation of its own",
    RingState.COVERED: "made from the present ring",
}


def utc(milliseconds: int) -> str:
    """A timestamp as people and programs read it, such as 2026-11-23T07:00:00.000Z."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class RingHealth:
    """One moment. `generation`: the latest valid one's timestamp in milliseconds, None before the first is known.

    `waits_for`: in words, what the next step needs; `nodes`: how many the ring has, 0 before it was read.
    """

    generation: int | None
    state: RingState
    waits_for: str
    nodes: int

    def as_json(self) -> dict[str, object]:
        """For /status."""
        return {
            "generation": self.generation,
            "state": self.state,
            "waits_for": self.waits_for,
            "nodes": self.nodes,
        }

    def __str__(self) -> str:
        latest = "no generation yet" if self.generation is None else f"latest generation from {utc(self.generation)}"
        waits = "" if self.waits_for == NOTHING else f"; waiting for {self.waits_for}"
        return f"{self.nodes} nodes; {latest}; {_MEANINGS[self.state]}{waits}"
