"""What SELECT returns of a state: rows that are there or not, values, orders, expiry, dropped columns."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from tailrace_schemas.change import EXPIRED_TTL, Change, Deletion, Marker, Op
from tailrace_schemas.table import Table
from tailrace_spark.rowstate.cells import CellState
from tailrace_spark.rowstate.codec import decode_state, encode_state
from tailrace_spark.rowstate.plain import plain_state
from tailrace_spark.rowstate.row import ColumnState, RowState, merge, state_of
from tailrace_spark.rowstate.visible import visible
from tests.unit.spark.cassandra import Log, path
from tests.unit.spark.changes import absorbed
from tests.unit.tables import table

WIDE = table(
    {"p": "int"},
    {"c": "int"},
    {"s": "int", "t": "set<int>"},
    {"v": "int", "l": "list<int>", "m": "map<text, int>", "x": "set<int>", "u": "addr", "f": "frozen<list<int>>"},
)
LOG = Log(WIDE)
K, C = (1,), (1,)


def seen(*changes: Change, covering: Deletion | None = None, static: bool = False) -> dict[str, Any] | None:
    return visible(absorbed(*changes), WIDE, covering, static=static)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], None),
        ([LOG.insert(K, C, 1)], {}),
        ([LOG.update(K, C, 1, v=5)], {"v": 5}),
        ([LOG.update(K, C, 1, v=None)], None),
        ([LOG.insert(K, C, 1, v=5), LOG.update(K, C, 2, v=None)], {}),
        ([LOG.insert(K, C, 1, v=5), LOG.delete(K, C, 1)], None),
        ([LOG.insert(K, C, 1, v=5), LOG.delete(K, C, 1), LOG.update(K, C, 2, v=6)], {"v": 6}),
        ([LOG.update(K, C, 1, l={"=": None})], None),
        ([LOG.update(K, C, 1, f=[1, None])], {"f": [1, None]}),
    ],
)
def test_a_row_is_there_when_its_marker_or_a_cell_is(changes: list[Change], expected: dict[str, object] | None) -> None:
    assert seen(*changes) == expected


VIEW = Log(replace(WIDE, flags=frozenset({"compound", "view", "strict"})))
BACK = VIEW.insert(K, C, 2, v=5)


def gone(at: int, expires: int = 100) -> Change:
    """A row leaves a view, as a node logs it: at the time of what brought it there."""
    return replace(VIEW.update(K, C, 1), op=Op.DELETE, marker=Marker(at, EXPIRED_TTL, expires))


@pytest.mark.promise("sinks.views")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([VIEW.insert(K, C, 1, v=5)], {"v": 5}),
        ([VIEW.insert(K, C, 1, v=5), gone(1)], None),
        ([VIEW.insert(K, C, 1, v=5), gone(1, 10**9)], None),  # by a node whose clock is ahead
        ([VIEW.insert(K, C, 1, v=5), gone(1), BACK], {"v": 5}),
        ([VIEW.insert(K, C, 1, v=5), gone(1), VIEW.update(K, C, 9, v=6)], None),
        ([VIEW.update(K, C, 9, v=6)], None),
        ([replace(VIEW.update(K, C, 9, v=6), op=Op.READ)], {"v": 6}),
        ([replace(VIEW.update(K, C, 9, v=6), op=Op.READ), gone(1)], None),
        ([replace(VIEW.insert(K, C, 9), op=Op.READ)], {}),
        ([replace(VIEW.insert(K, C, 9), op=Op.READ), gone(1)], None),
    ],
)
def test_a_row_of_a_strict_view_is_there_while_its_marker_lives(
    changes: list[Change], expected: dict[str, object] | None
) -> None:
    """Whatever order they come in, and after each was stored."""
    for ordered in permutations(changes):
        state = RowState()
        for change in ordered:
            state = decode_state(encode_state(merge(state, state_of(change))))
        assert visible(state, VIEW.table, now=50) == expected
        assert plain_state(changes[0]) is None


def test_a_row_of_another_view_is_there_by_its_cells_too() -> None:
    log = Log(replace(WIDE, flags=frozenset({"compound", "view"})))
    expired = replace(log.update(K, C, 1), op=Op.DELETE, marker=Marker(1, EXPIRED_TTL, 100))
    assert seen(log.insert(K, C, 1), expired) is None
    assert seen(log.insert(K, C, 1), expired, log.update(K, C, 2, v=6)) == {"v": 6}


def test_a_static_row_needs_a_live_cell() -> None:
    assert seen(LOG.static(K, 1, s=None), static=True) is None
    assert seen(LOG.static(K, 1, s=3, t={7: "", -1: ""}), static=True) == {"s": 3, "t": [-1, 7]}


def test_a_deletion_from_outside_covers_what_is_not_newer() -> None:
    row = LOG.insert(K, C, 5, v=1)
    assert seen(row, covering=Deletion(5, 0)) is None
    assert seen(row, covering=Deletion(4, 0)) == {"v": 1}
    assert seen(row, LOG.update(K, C, 6, l={1: 2}), covering=Deletion(5, 0)) == {"l": [2]}


def test_collections_stand_in_cassandras_order() -> None:
    assert seen(
        LOG.update(K, C, 1, l={300: 3, 2: 2, 70000: 4, 1: 1}, m={"b": 2, "": 0, "a": 1}, x={5: "", -5: "", 0: ""})
    ) == {
        "l": [1, 2, 3, 4],
        "m": [{"key": "", "value": 0}, {"key": "a", "value": 1}, {"key": "b", "value": 2}],
        "x": [-5, 0, 5],
    }


def test_lists_are_ordered_by_time_and_not_by_bytes() -> None:
    # The low bits of the time stand first in a time UUID: 2^32 is later than 1, its bytes are smaller.
    assert path(1 << 32) < path(1)
    assert seen(LOG.update(K, C, 1, l={1 << 32: 2, 1: 1})) == {"l": [1, 2]}


def test_elements_are_edited_and_overwritten() -> None:
    first = LOG.update(K, C, 5, l={"=": None, 1: 1, 2: 2}, u={"=": None, "street": "a", "zip": 1})
    edit = LOG.update(K, C, 6, l={2: None, 3: 3}, u={"street": None})
    again = LOG.update(K, C, 7, l={"=": None, 9: 9}, u=None)
    assert seen(edit, first) == {"l": [1, 3], "u": {"street": None, "zip": 1, "tags": None}}
    assert seen(again, edit, first) == {"l": [9]}


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (table({"p": "int"}, regular={"v": "int"}), {"v": 1}),
        (table({"p": "int"}, dropped={"v": ("int", 5)}), None),
        (table({"p": "int"}, regular={"v": "int"}, dropped={"v": ("int", 5)}), None),
        (table({"p": "int"}, regular={"v": "int"}, dropped={"v": ("int", 4)}), {"v": 1}),
        (table({"p": "int"}, regular={"v": "list<int>"}, dropped={"v": ("int", 4)}), None),
    ],
)
def test_cells_of_dropped_columns_are_no_data(definition: Table, expected: dict[str, object] | None) -> None:
    state = RowState(None, None, {b"v": ColumnState(None, {None: CellState(5, None, None, b"\x00\x00\x00\x01")})})
    assert visible(state, definition) == expected


def test_an_empty_value_is_a_live_cell_that_shows_nothing() -> None:
    state = RowState(None, None, {b"v": ColumnState(None, {None: CellState(5, None, None, b"")})})
    assert visible(state, WIDE) == {}
