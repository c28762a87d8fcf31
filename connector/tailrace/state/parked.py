"""Mutations set aside because nothing explains them, or nobody takes their changes: which ones, since when, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from tailrace_schemas.position import Position

LOT: Final = 1000
"""Most mutations of one lot: it is rewritten whenever one joins or leaves it."""

_REASON: Final = 1000
"""Characters of a reason that are kept: a column's name alone may have 64 KiB."""

LotKey = tuple[int, int, UUID, int]
"""Epoch, segment, table id, and the offset of the mutation that the lot began with."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A lot: mutations of one segment that wait for the same table and reason. None of their changes was published.

    `checksum` is that of the segment's header, `offsets` are the ends of the mutations, ascending; `since` is when the
    first was parked (milliseconds). `dead`: told in dead letters; tried again all the same when the schema changes.
    """

    epoch: int
    segment: int
    checksum: int
    table: UUID
    first: int
    offsets: tuple[int, ...]
    since: int
    reason: str
    dead: bool = False

    @property
    def key(self) -> LotKey:
        """What tells it from all others of its host."""
        return self.epoch, self.segment, self.table, self.first


class ParkingLot:
    """All parked mutations of a host. Mutable; `capacity` is how many there may be."""

    def __init__(self, lots: Iterable[Parked], capacity: int) -> None:
        self._capacity = capacity
        self._lots = {lot.key: lot for lot in lots}
        self.changed = False
        """Whether something came or went since whoever commits them set this to False."""

    @property
    def lots(self) -> tuple[Parked, ...]:
        """By position."""
        return tuple(lot for _, lot in sorted(self._lots.items(), key=lambda item: (item[0][:2], item[0][3])))

    @property
    def mutations(self) -> int:
        """How many are parked."""
        return sum(len(lot.offsets) for lot in self._lots.values())

    @property
    def full(self) -> bool:
        """Whether no more may be parked."""
        return self.mutations >= self._capacity

    @property
    def waiting(self) -> bool:
        """Whether there are some that are not told in dead letters yet."""
        return any(not lot.dead for lot in self._lots.values())

    @property
    def segments(self) -> frozenset[int]:
        """The segments whose files they are in."""
        return frozenset(lot.segment for lot in self._lots.values())

    def holds(self, table: UUID) -> bool:
        """Whether mutations wait for this table."""
        return any(lot.table == table for lot in self._lots.values())

    def park(self, position: Position, checksum: int, table: UUID, now: int, reason: str) -> bool:
        """Set one more aside; whether it begins a lot."""
        self.changed = True
        reason = reason[:_REASON]
        for lot in self._lots.values():
            matches = (lot.epoch, lot.segment, lot.table, lot.reason) == (
                position.epoch,
                position.segment,
                table,
                reason,
            )
            if matches and not lot.dead and len(lot.offsets) < LOT and lot.offsets[-1] < position.offset:
                self._lots[lot.key] = replace(lot, offsets=(*lot.offsets, position.offset))
                return False
        lot = Parked(
            position.epoch, position.segment, checksum, table, position.offset, (position.offset,), now, reason
        )
        self._lots[lot.key] = lot
        return True

    def remove(self, lot: Parked, offsets: Iterable[int]) -> None:
        """These mutations are parked no longer."""
        self.changed = True
        removed, present = frozenset(offsets), self._lots[lot.key]
        remaining = tuple(offset for offset in present.offsets if offset not in removed)
        if remaining:
            self._lots[lot.key] = replace(present, offsets=remaining)
        else:
            del self._lots[lot.key]

    def bury(self, lot: Parked) -> None:
        """It was reported in a dead letter."""
        self.changed = True
        self._lots[lot.key] = replace(self._lots[lot.key], dead=True)
