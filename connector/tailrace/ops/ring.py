"""What an agent's health says of the ring and its generations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
        latest = "none yet" if self.generation is None else f"from {self.generation} ms"
        return f"{self.nodes} nodes, {self.state}; the latest generation: {latest}; waits for {self.waits_for}"
