"""Expiry: exact to the second, foretold, and nothing older comes back when something has expired."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import EXPIRED_TTL, Change, Deletion, Marker
from tailrace_schemas.table import DroppedColumn
from tailrace_spark.rowstate.cells import CellState, newer_marker
from tailrace_spark.rowstate.row import ColumnState, RowState, merge, state_of
from tailrace_spark.rowstate.visible import VisibleColumns, visible
from tests.unit.spark.changes import OF_ANY_BYTES, PLAIN, deletions, row_changes
from tests.unit.tables import table

ONE = b"\0\0\0\1"


def state(marker: Marker | None = None, **cells: CellState) -> RowState:
    return RowState(marker, None, {name.encode(): ColumnState(None, {None: cell}) for name, cell in cells.items()})


def expiring(expires: int, written: int = 1) -> CellState:
    return CellState(written, 10, expires, ONE)


def strict(marker: Marker | None, **cells: CellState) -> RowState:
    """Of a view whose rows are there only while their marker lives."""
    return RowState(marker, None, state(None, **cells).columns, strict=True)


LIVE = CellState(1, None, None, ONE)


STRICT = replace(PLAIN, flags=frozenset({"compound", "strict"}))
never_lived = row_changes(STRICT).map(lambda change: replace(change, marker=Marker(2, EXPIRED_TTL, 12)))
any_changes = st.one_of(row_changes(), row_changes(STRICT), never_lived)


@given(st.lists(any_changes, max_size=5), st.one_of(st.none(), deletions), st.integers(8, 12))
def test_it_is_foretold_to_the_second(changes: list[Change], covering: Deletion | None, now: int) -> None:
    known = RowState()
    for change in changes:
        known.absorb(state_of(change))
    rows = {at: visible(known, OF_ANY_BYTES, covering, at) for at in range(now, 13)}
    expected = next((at for at in range(now + 1, 13) if rows[at] != rows[now]), None)
    foretold = known.next_expiry(covering, now)
    # A marker is foretold too where cells outlive it.
    is_only_of_marker = known.marker is not None and foretold == known.marker.expires
    assert foretold == expected or (is_only_of_marker and now < (foretold or 0) < (expected or 13))


def test_a_row_that_only_a_dropped_column_outlives_ends_with_its_marker() -> None:
    """Cells are those of the log, whatever columns the table has by now: none of them keeps a row (DroppedColumn)."""
    dropped = replace(PLAIN, regular=(), dropped=tuple(DroppedColumn(column, 1) for column in PLAIN.regular))
    known = state(Marker(2, 10, 100), v=LIVE)
    assert [visible(known, dropped, now=at) for at in (99, 100)] == [{}, None]
    assert (known.next_expiry(), known.next_expiry(after=100)) == (100, None)


def test_nothing_expires_of_a_strict_row_that_is_gone() -> None:
    assert strict(Marker(1, 10, 100), v=expiring(200)).next_expiry(None, 150) is None


@pytest.mark.parametrize("other", [Marker(5), Marker(5, 60, 2_000)])
def test_a_marker_that_never_lived_wins_over_all_of_its_time(other: Marker) -> None:
    """As LivenessInfo.supersedes has it, in any order."""
    gone, later = Marker(5, EXPIRED_TTL, 100), Marker(6)
    assert newer_marker(gone, other) == newer_marker(other, gone) == gone
    assert newer_marker(gone, later) == later


def test_a_row_lives_on_in_its_cells_when_its_marker_has_expired() -> None:
    """And nothing expires for who does not say when."""
    known, alone = state(Marker(1, 10, 100), v=LIVE, w=expiring(101)), state(Marker(1, 10, 100))
    assert [visible(alone, OF_ANY_BYTES, now=at) for at in (None, 99, 100)] == [{}, {}, None]
    both = {"v": ONE, "w": ONE}
    assert [visible(known, OF_ANY_BYTES, now=at) for at in (None, 99, 100, 101)] == [both, both, both, {"v": ONE}]
    assert [visible(state(Marker(1, 10, 100), w=expiring(101)), OF_ANY_BYTES, now=at) for at in (100, 101)] == [
        {"w": ONE},
        None,
    ]


@pytest.mark.parametrize("older", [CellState(4, None, None, b"old"), CellState(4, 10_000, 9_999, b"old")])
def test_what_has_expired_holds_back_what_is_older(older: CellState) -> None:
    for at in (99, 100, 10_000):
        for known in (
            merge(state(v=expiring(100, 5)), state(v=older)),
            merge(state(v=older), state(v=expiring(100, 5))),
        ):
            assert visible(known, OF_ANY_BYTES, now=at) == ({"v": ONE} if at < 100 else None)


def test_write_times_and_what_is_left_to_live() -> None:
    many = table(
        {"p": "int"}, {"c": "int"}, regular={"v": "int", "w": "int", "l": "list<int>", "s": "set<int>", "u": "addr"}
    )
    known = state(Marker(1), v=expiring(100, 5), w=CellState(6, None, None, b""))
    known.columns[b"l"] = ColumnState(
        None, {bytes(15) + b"\2": expiring(90, 7), bytes(15) + b"\1": CellState(8, None, None, ONE)}
    )
    known.columns[b"s"] = ColumnState(None, {ONE: expiring(60, 9)})
    known.columns[b"u"] = ColumnState(None, {b"\0\1": CellState(3, None, None, ONE)})
    shown = VisibleColumns(many)
    assert shown.times(known, now=60) == {
        "v": (5, 40),
        "w": (6, None),
        "l": [(8, None), (7, 30)],
        "u": [None, (3, None), None],
    }
    assert shown.times(known, Deletion(5, 0), now=95) == {"w": (6, None), "l": [(8, None)]}
    assert shown.times(known, Deletion(8, 0), now=95) is None
    assert shown.times(state(Marker(1)), now=95) == {}
