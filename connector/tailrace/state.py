"""What an agent's records hold, as values: where it resumes, what is parked or lost (docs/contracts.md section 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final
from uuid import UUID

from tailrace_schemas.position import Position

LOT: Final = 1000
"""Most mutations of one lot: it is rewritten whenever one joins or leaves it."""

_REASON: Final = 1000
"""Characters of a reason that are kept: a column's name alone may have 64 KiB."""

LotKey = tuple[int, int, UUID, int]
"""Epoch, segment, table id, and the offset of the mutation that the lot began with."""
Newest = tuple[UUID, int, bool]
"""A table id, the time of its newest truncation in milliseconds, and whether that was inferred."""
Span = tuple[int, int]
"""Segment ids from the first to the last, both included."""
FIRST_EPOCH: Final = 1

SegmentKey = tuple[int, int]
"""Segment id and header checksum."""


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
        previous = self._lots.get(lot.key)
        if previous is not None:  # that began with this mutation, which had left it to wait for another table
            lot = replace(previous, offsets=(position.offset, *previous.offsets), dead=False)
        self._lots[lot.key] = lot
        return previous is None

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


def spans(ids: Iterable[int]) -> tuple[Span, ...]:
    """Ids as spans of consecutive ones."""
    runs: list[Span] = []
    for id in sorted(set(ids)):
        if runs and id == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], id)
        else:
            runs.append((id, id))
    return tuple(runs)


def united(spans: Iterable[Span], added: Iterable[Span] = ()) -> tuple[Span, ...]:
    """Spans as few as possible."""
    merged: list[Span] = []
    for a, b in sorted((*spans, *added)):
        if merged and a <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return tuple(merged)


def without(span: Span, excluded: Iterable[Span]) -> tuple[Span, ...]:
    """What of a span stands in none of the known ones."""
    pieces, (first, last) = list[Span](), span
    for a, b in united(excluded):
        if b < first or a > last:
            continue
        if a > first:
            pieces.append((first, a - 1))
        first = b + 1
    return (*pieces, (first, last)) if first <= last else tuple(pieces)


def ids_of(spans: Iterable[Span]) -> frozenset[int]:
    """Every id of spans that were made of ids."""
    return frozenset(id for a, b in spans for id in range(a, b + 1))


QUARANTINED_CAUSE: Final = "segment "
"""What the names of quarantined segments in health begin with; their ids follow."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A segment that is read no further: id, header checksum, position of its last good mutation, and why."""

    segment: int
    checksum: int
    offset: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """What a host's record in `<prefix>.offsets` says.

    Where reading starts, from the offsets record: behind `position` (None: at the oldest segment there is).

    `open` and `quarantined` are the record's; Ledger and contracts.md 1 say what they are for. `unread` are segments
    that had an index and were not read to their end, `reported` those that were reported missing (retention.missing).
    `parked` are mutations at or below the position whose changes wait.

    `schema` is the position up to which all segments were read for DDL, at or ahead of `position` (None: nowhere yet).
    Of what was met up to there, `truncations` are not published yet, and `truncated` has each table's newest (None:
    never asked). `metadata` are two epochs of Cassandra 6's metadata: that of which all DDL was met, and that whose DDL
    comes next or came last.
    """

    position: Position | None = None
    open: tuple[SegmentKey, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    schema: Position | None = None
    unread: tuple[Span, ...] = ()
    reported: tuple[Span, ...] = ()
    parked: tuple[Parked, ...] = ()
    truncations: tuple[Truncation, ...] = ()
    truncated: tuple[Newest, ...] | None = None
    metadata: tuple[int, int | None] | None = None


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
