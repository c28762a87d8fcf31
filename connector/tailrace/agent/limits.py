"""The limits of the run loop: when a transaction is committed, and how long mutations stay parked."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace_common.backoff import Waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a transaction is committed, and how long mutations stay parked.

    A transaction ends at `changes` for each partition that it touches: each partition costs the commit about the same.
    It also ends at an age: `seconds` for up to `partitions`, in proportion for more, at most `seconds_most`.
    Under a backlog it takes up to `stretch_changes` times as many changes, and gets up to `stretch_seconds` times as
    old. Commits that only move the position are at least `idle_seconds` apart, progress records `progress_seconds`.
    At most `parked` mutations are parked at a time; dead letters report them after `parked_seconds`.
    """

    changes: int = 64
    seconds: float = 0.02
    partitions: int = 36
    seconds_most: float = 1.0
    stretch_changes: int = 64
    stretch_seconds: int = 8
    idle_seconds: float = 10.0
    progress_seconds: float = 10.0
    poll_seconds: float = 1.0
    retry_seconds: float = 0.5
    retry_seconds_most: float = 30.0
    read: int = 1024
    parked: int = 100_000
    parked_seconds: float = 3600.0
    dead_letter_payloads: bool = False

    @property
    def waits(self) -> Waits:
        """Between attempts at what fails."""
        return Waits(self.retry_seconds, self.retry_seconds_most)
