"""One truncation of a table, and what is remembered of the newest one."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from tailrace_schemas.position import Position

Newest = tuple[UUID, int, bool]
"""A table id, the time of its newest truncation in milliseconds, and whether that was inferred."""


@dataclass(frozen=True, slots=True, order=True)
class Truncation:
    """A TRUNCATE of one table. `position` is the end of its record in the log, or of the hole in which that stood.

    `at` is the node's time of it, in milliseconds. The table's data up to `upto` (segment, offset) of this node's log
    went; what stands behind that stayed, whatever its write time; (-1, 0): unknown. Ordered by position.
    """

    position: Position
    table_id: UUID
    at: int
    upto: tuple[int, int] = (-1, 0)
    inferred: bool = False

    @property
    def effective_position(self) -> Position:
        """Its position among the table's changes: behind those that it took, before those that it left."""
        segment, offset = self.upto
        # The record is written when the data is gone already, so changes that stayed may stand before it.
        return self.position if segment < 0 else min(self.position, Position(self.position.epoch, segment, offset))

    @property
    def written(self) -> int:
        """`at` in microseconds, as write times are."""
        return self.at * 1000
