"""How many rows a page is to have. No clock, no I/O."""

from __future__ import annotations

from typing import Final

_FIRST_ROWS: Final = 200
_GROWTH: Final = 4


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
