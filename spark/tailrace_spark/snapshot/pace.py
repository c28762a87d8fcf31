"""How fast a task reads, and why a request of it fails. No clock, no I/O."""

from __future__ import annotations

from enum import Enum


class Fault(Enum):
    """Why a request failed."""

    TIMEOUT = "timeout"
    """A node or the driver waited too long: smaller pages may help."""
    FAILED = "failed"
    """A replica gave up, over too many tombstones for one: smaller pages may help."""
    OVERLOADED = "overloaded"
    """A node asks for patience."""
    UNREACHABLE = "unreachable"
    """There is no connection, or too few replicas live: another replica may answer."""


class RowRate:
    """Keeps a task to so many rows a second, from its start on; None: as many as come."""

    def __init__(self, rows_per_second: float | None, start: float) -> None:
        self._rate = rows_per_second
        self._due = start

    def wait(self, rows: int, now: float) -> float:
        """Seconds to wait after so many rows at this time. Time in which nobody read is not made up for."""
        if self._rate is None:
            return 0.0
        self._due = max(self._due, now - 1.0) + rows / self._rate
        return max(0.0, self._due - now)
