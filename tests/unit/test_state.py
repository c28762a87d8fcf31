"""Spans of segments against sets of ids."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.capture.cdcraw import CdcRaw
from tailrace.state import LOT, Parked, ParkingLot, Resume, ids_of, spans, united, without
from tailrace_schemas.position import Position
from tests.unit.capture.segments import SegmentWriter

IDS = st.sets(st.integers(0, 40))
A, B, C = (letter * 10 for letter in (b"a", b"b", b"c"))
ONE, TWO = UUID(int=1), UUID(int=2)


@given(IDS, IDS)
def test_spans_are_sets_of_ids(some: set[int], others: set[int]) -> None:
    """Against Python's own sets."""
    assert ids_of(spans(some)) == some
    assert ids_of(united(spans(some), spans(others))) == some | others
    assert united(spans(some), spans(others)) == spans(some | others)
    assert ids_of(without((5, 30), spans(some))) == set(range(5, 31)) - some


def test_mutations_of_a_segment_and_table_share_lots_of_limited_size() -> None:
    """A lot is written whole whenever it changes."""
    lot = ParkingLot((), 10 * LOT)
    begun = [lot.park(Position(1, 5, offset), 9, ONE, offset, "why") for offset in range(1, LOT + 3)]
    assert [number for number, new in enumerate(begun, 1) if new] == [1, LOT + 1]
    assert [(one.first, len(one.offsets), one.since) for one in lot.lots] == [(1, LOT, 1), (LOT + 1, 2, LOT + 1)]
    assert lot.park(Position(1, 5, LOT + 9), 9, TWO, 7, "why")
    assert lot.park(Position(1, 6, 1), 9, ONE, 7, "why")
    assert lot.mutations == LOT + 4
    assert lot.segments == {5, 6}


def test_what_was_told_in_a_dead_letter_gets_no_company() -> None:
    """The letter says what was in it."""
    lot = ParkingLot((), 10)
    lot.park(Position(1, 5, 1), 9, ONE, 0, "why")
    before = lot.waiting
    lot.bury(lot.lots[0])
    assert (before, lot.waiting) == (True, False)
    assert lot.park(Position(1, 5, 2), 9, ONE, 0, "why")
    assert [one.dead for one in lot.lots] == [True, False]


def test_a_mutation_that_comes_back_from_an_earlier_place_begins_a_lot() -> None:
    """Offsets of a lot ascend, and its key is the first that it had."""
    lot = ParkingLot((), 10)
    lot.park(Position(1, 5, 7), 9, ONE, 0, "why")
    assert lot.park(Position(1, 5, 3), 9, ONE, 0, "why")
    assert [one.offsets for one in lot.lots] == [(3,), (7,)]


@pytest.mark.promise("agent.parked")
@pytest.mark.parametrize("reason", ["why", "refused"])
@pytest.mark.parametrize("dead", [False, True])
def test_a_mutation_that_comes_back_to_the_lot_that_it_began(reason: str, dead: bool) -> None:
    """It had left to wait for another table of its own. None of those that stayed is forgotten for it."""
    lot = ParkingLot([Parked(1, 5, 9, ONE, 3, (7, 9), 0, "why", dead)], 10)
    assert not lot.park(Position(1, 5, 3), 9, ONE, 8, reason)
    assert [(one.key, one.offsets, one.dead) for one in lot.lots] == [((1, 5, ONE, 3), (3, 7, 9), False)]


def test_a_lot_keeps_its_key_until_it_is_empty() -> None:
    """What leaves it may be its first."""
    lot = ParkingLot([Parked(1, 5, 9, ONE, 1, (1, 2, 3), 0, "why")], 10)
    assert not lot.changed
    (one,) = lot.lots
    lot.remove(one, (1,))
    lot.remove(one, (3,))
    assert [(left.key, left.offsets) for left in lot.lots] == [((1, 5, ONE, 1), (2,))]
    lot.remove(one, (2,))
    assert (lot.lots, lot.changed, lot.holds(ONE)) == ((), True, False)


def written(root: Path) -> tuple[SegmentWriter, list[int]]:
    """A finished segment of three mutations."""
    segment = SegmentWriter(root, 5)
    ends = segment.write(A, B)
    segment.sync()
    ends += segment.write(C)
    segment.sync(completed=True)
    return segment, ends


def test_mutations_are_read_once_more_by_their_ends(tmp_path: Path) -> None:
    """In order, whatever was read of the segment before, and while it is being read."""
    _, ends = written(tmp_path)
    with closing(CdcRaw(tmp_path / "cdc_raw", Resume())) as capture:
        assert len(capture.read(1)) == 1
        ((_, checksum),) = capture.open_segments()
        again = list(capture.reread(3, 5, checksum, (ends[2], ends[0])))
        assert [(entry.position, entry.payload) for entry in again] == [
            (Position(3, 5, ends[0]), A),
            (Position(3, 5, ends[2]), C),
        ]
        assert [entry.payload for entry in capture.read(9)] == [B, C]


@pytest.mark.parametrize("what", ["gone", "another", "damaged"])
def test_what_cannot_be_read_again_does_not_come(tmp_path: Path, what: str) -> None:
    """A file that is gone, one of another log, one that broke since: what is whole before the damage comes."""
    segment, ends = written(tmp_path)
    with closing(CdcRaw(tmp_path / "cdc_raw", Resume())) as capture:
        assert len(capture.read(9)) == 3
        ((_, checksum),) = capture.open_segments()
        if what == "gone":
            segment.link.unlink()
        elif what == "another":
            checksum += 1
        else:
            segment.patch(ends[2] - 8, b"\xff")
        found = [entry.payload for entry in capture.reread(1, 5, checksum, ends)]
    assert found == ([A, B] if what == "damaged" else [])
