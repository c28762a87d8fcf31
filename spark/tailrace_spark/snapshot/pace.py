"""How fast a task reads, how many rows a page is to have, and why a request fails. No clock, no I/O."""

from __future__ import annotations

from enum import Enum
from typing import Final

_FIRST_ROWS: Final = 200
_GROWTH: Final = 4


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


class PageSize:
    """How many rows the next page is to have: as many as asked for, while they have few bytes and come in time.

    It begins small, as nobody knows the rows' size yet. A failure that fewer rows may mend halves it, down to a row.
    It grows again later.
    """

    def __init__(self, most_rows: int, most_octets: int) -> None:
        self._most_rows = most_rows
        self._most_octets = most_octets
        self.rows = min(most_rows, _FIRST_ROWS)

    def took(self, rows: int, octets: int) -> None:
        """A page came with so many rows and bytes."""
        fitting = self._most_octets * rows // octets if rows and octets else self._most_rows
        self.rows = max(1, min(self._most_rows, fitting, self.rows * _GROWTH))

    def halve(self) -> bool:
        """Ask for half as many rows; False: it is one row already."""
        rows, self.rows = self.rows, max(1, self.rows // 2)
        return self.rows < rows
