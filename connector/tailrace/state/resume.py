"""Where an agent goes on: what its record in `<prefix>.offsets` says (docs/contracts.md section 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace.state.parked import Parked
from tailrace.state.spans import Span
from tailrace.state.truncation import Newest, Truncation
from tailrace_schemas.position import Position

FIRST_EPOCH: Final = 1

SegmentKey = tuple[int, int]
"""Segment id and header checksum."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A segment that is read no further: id, header checksum, position of its last good mutation, and why."""

    segment: int
    checksum: int
    offset: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where reading starts, from the offsets record: behind `position` (None: at the oldest segment there is).

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
