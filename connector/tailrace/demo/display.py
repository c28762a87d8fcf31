"""What the demo has to show, and whoever shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tailrace.demo.comparison import Comparison
from tailrace_schemas.change import Change


@dataclass(frozen=True, slots=True)
class Seen:
    """A change as it stands in Kafka."""

    topic: str
    partition: int
    offset: int
    change: Change
    key: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Landed:
    """A change that the SQLite file has: its row there (None: gone), or how many rows its partition has there.

    `stream_id` is what the file says of that place. `seconds` from the write to now; None where the statement chose
    its write time itself.
    """

    seen: Seen
    stream_id: str | None = None
    row: Mapping[str, object] | None = None
    rows: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of each so far; `latencies` in seconds, in order of arrival."""

    written: int = 0
    published: int = 0
    landed: int = 0
    rows: int = 0
    latencies: tuple[float, ...] = field(default=(), repr=False)

    @property
    def median_seconds(self) -> float | None:
        """The middle one of the latencies."""
        return sorted(self.latencies)[len(self.latencies) // 2] if self.latencies else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the demo ended. `seconds` is its whole time."""

    comparison: Comparison
    counts: Counts
    seconds: float


class Display(Protocol):
    """Shows the demo. One thread calls everything but `fetched` and `part`."""

    def fetched(self, done: int, total: int) -> None:
        """Bytes of jars that are there, and in all; from any thread."""

    def part(self, name: str, state: str, where: str = "") -> None:
        """A service or program of ours is now in this state; `where` it is reached, or its file; from any thread."""

    def landed(self, landed: Landed) -> None:
        """A change has arrived in the SQLite file."""

    def counts(self, counts: Counts) -> None:
        """The numbers so far."""

    def refresh(self) -> None:
        """Called several times a second."""

    def finished(self, outcome: Outcome) -> None:
        """The comparison was made; nothing but `addresses` follows."""

    def addresses(self, lines: Mapping[str, str]) -> None:
        """Everything is left running: what is where, and how to look."""

    def close(self) -> None:
        """Leave the terminal as it was."""
