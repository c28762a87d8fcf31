"""Purging: only what deletes or has expired goes, nothing seen changes, and later writes merge as if it were there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Deletion, Marker
from tailrace_schemas.streams import Assignment
from tailrace_spark.rowstate.cells import CellState
from tailrace_spark.rowstate.partition import deletes_from, purge
from tailrace_spark.rowstate.row import ColumnState, RowState, merge
from tailrace_spark.rowstate.visible import visible
from tests.unit.spark.changes import OF_ANY_BYTES, absorbed, row_changes
from tests.unit.spark.rowstate import counters

SECOND = 1_000_000


@given(st.lists(row_changes(), max_size=5), st.lists(row_changes(), max_size=3), st.integers(-1, 4))
@pytest.mark.slow
def test_what_comes_later_merges_as_if_nothing_had_been_purged(
    known: list[Change], later: list[Change], horizon: int
) -> None:
    # Times of writes are 0 to 4 microseconds, those of expiry 10 and 11 seconds: only writing counts here.
    state = absorbed(*known)
    before = merge(state, RowState())
    purged_to = purge(state, horizon)
    assert visible(state, OF_ANY_BYTES, now=9) == visible(before, OF_ANY_BYTES, now=9)
    assert (purged_to is None) == (state == before)
    if purged_to is not None:
        assert purged_to <= horizon
        said = absorbed(*[change for change in later if _all_newer(change, purged_to)])
        assert visible(merge(state, said), OF_ANY_BYTES, now=9) == visible(merge(before, said), OF_ANY_BYTES, now=9)
    assert purge(state, horizon) is None


def _all_newer(change: Change, than: int) -> bool:
    parts = [*change.cells, *(part.deletion for part in change.column_deletions), change.marker, change.deletion]
    return all(part.written > than for part in parts if part is not None)


def test_what_expired_and_was_written_far_ahead_stays() -> None:
    """Else everything that is written until then would be as old as what was purged: late, and in no table."""
    ahead = 200 * SECOND
    state = RowState(Marker(ahead, 10, 50), None, {b"v": ColumnState(None, {None: CellState(ahead, 10, 60, b"a")})})
    assert purge(state, 100 * SECOND) is None
    assert deletes_from(state) == 200
    assert purge(state, ahead) == ahead


def test_the_row_its_marker_and_collections() -> None:
    state = RowState(
        Marker(7, 10, 1), Deletion(5, 0), {b"l": ColumnState(Deletion(6, 0), {b"1": CellState(8, None, None, b"")})}
    )
    assert purge(state, 5) == 5
    assert state.deletion is None
    assert purge(state, 6) == 6
    assert purge(state, SECOND) == 7
    assert state == RowState(None, None, {b"l": ColumnState(None, {b"1": CellState(8, None, None, b"")})})


def test_what_the_newest_was_assigned_goes_with_it() -> None:
    stream = Assignment(1, bytes(16))
    state = RowState(Marker(5), None, {b"v": ColumnState(None, {None: CellState(9, None, 1, None)})})
    state.assign(stream)
    assert purge(state, 8) is None
    assert state.assignment == stream
    assert purge(state, 9) == 9
    assert state == RowState(Marker(5))


@given(st.lists(counters.changes, max_size=5), st.integers(-1, 5))
def test_counters_stay_gone(known: list[Change], horizon: int) -> None:
    state = absorbed(*known)
    before = visible(state, counters.COUNTERS)
    purge(state, horizon)
    assert visible(state, counters.COUNTERS) == before
