"""Merging rows: the laws, and a model that keeps every write and works out the answer from scratch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Cell, Change, ColumnDeletion, Deletion, Marker, Op
from tailrace_schemas.cql.types import UserTypeDefinition, parse_type
from tailrace_schemas.cql.values import codec
from tailrace_schemas.streams import Assignment
from tailrace_spark.rowstate.cells import CellState
from tailrace_spark.rowstate.codec import decode_state, encode_state
from tailrace_spark.rowstate.row import ColumnState, RowState, merge, path_key, state_of
from tailrace_spark.rowstate.visible import visible
from tests.unit.spark import changes as tables
from tests.unit.spark.changes import PLAIN, assignments, column, deletions, row_changes
from tests.unit.tables import table

Assigned = tuple[Change, Assignment | None]
histories = st.lists(st.tuples(row_changes(), assignments), max_size=6)
DECIMALS = table(
    {"p": "int"},
    {"c": "int"},
    regular={"s": "set<decimal>", "m": "map<decimal, text>", "n": "set<frozen<list<varint>>>"},
)
ONE, ONE_0, ONE_00, TWO = (codec(parse_type("decimal", {})).encode(value) for value in ("1", "1.0", "1.00", "2"))


def absorbed(changes: Iterable[Assigned], covering: Deletion | None = None, since: int = 0) -> RowState:
    """What is known after all changes; `covering` came before the one of the index `since`, at the latest last."""
    state = RowState()
    for index, (change, assignment) in enumerate(changes):
        state.absorb(state_of(change, assignment))
        if covering is not None and index >= since:
            state.shadow(covering)
    if covering is not None:
        state.shadow(covering)
    return state


# The model. Written along Cassandra's own branches, not along the ranks of the code under test.


def _model_cell(left: Cell, right: Cell) -> Cell:
    """Cells.resolveRegular, branch by branch."""
    if left.written != right.written:
        return left if left.written > right.written else right
    left_ends, right_ends = left.expires is not None, right.expires is not None
    if left_ends or right_ends:
        if left_ends != right_ends:
            return left if left_ends else right
        left_dead, right_dead = left.ttl is None, right.ttl is None
        if left_dead != right_dead:
            return left if left_dead else right
        if left.expires != right.expires:
            return left if (left.expires or 0) > (right.expires or 0) else right
        if left.ttl != right.ttl:
            return left if (left.ttl or 0) < (right.ttl or 0) else right
    return left if list(left.value or b"") >= list(right.value or b"") else right


def _model_marker(left: Marker, right: Marker) -> Marker:
    """LivenessInfo.supersedes, with the smaller TTL at a full tie."""
    if left.written != right.written:
        return left if left.written > right.written else right
    if (left.ttl is None) == (right.ttl is None):
        if left.expires != right.expires:
            return left if (left.expires or 0) > (right.expires or 0) else right
        return left if (left.ttl or 0) <= (right.ttl or 0) else right
    return left if left.ttl is not None else right


def _later(found: list[Deletion]) -> Deletion | None:
    return max(found, key=lambda d: (d.written, d.local)) if found else None


def model(changes: list[Change], covering: Deletion | None = None) -> RowState:
    """Everything that was ever written, less what any deletion covers, the best of what is left."""
    rows = [c.deletion for c in changes if c.deletion is not None]
    active = _later([*rows, covering] if covering else rows)
    floor = active.written if active else -1
    row_deletion = active if active is not None and active != covering else None
    living = [c.marker for c in changes if c.marker is not None and c.marker.written > floor]
    columns = {}
    for regular in PLAIN.regular:
        own = [d.deletion for c in changes for d in c.column_deletions if d.column == regular]
        deletion = _later(own)
        if deletion is not None and active is not None and _later([active, deletion]) == active:
            deletion = None
        column_floor = max(floor, deletion.written if deletion else -1)
        cells: dict[bytes | None, list[Cell]] = {}
        for cell in (cell for c in changes for cell in c.cells if cell.column == regular):
            if cell.written > column_floor:
                cells.setdefault(cell.path, []).append(cell)
        best = {path: reduce(_model_cell, found) for path, found in cells.items()}
        if best or deletion:
            columns[regular.name_bytes] = ColumnState(
                deletion, {path: CellState(c.written, c.ttl, c.expires, c.value) for path, c in best.items()}
            )
    return RowState(reduce(_model_marker, living) if living else None, row_deletion, columns)


def _model_assignment(changes: list[Assigned], covering: Deletion | None) -> Assignment | None:
    """Of the changes of which anything is left: the newest write, then the latest deletion at that time."""
    alive = [one for one in changes if not model([one[0]], covering).empty]
    at = max((_last(change) for change, _ in alive), default=0)
    alive = [one for one in alive if _last(one[0]) == at]
    local = max((_local(change, at) for change, _ in alive), default=0)
    said = [assignment for change, assignment in alive if _local(change, at) == local]
    return max((one for one in said if one is not None), default=None)


def _last(change: Change) -> int:
    parts = [*change.cells, *(part.deletion for part in change.column_deletions), change.marker, change.deletion]
    return max((part.written for part in parts if part is not None), default=-1)


def _local(change: Change, at: int) -> int:
    parts = [*(part.deletion for part in change.column_deletions), change.deletion]
    return max((part.local for part in parts if part is not None and part.written == at), default=-1)


@pytest.mark.slow
@given(histories, st.one_of(st.none(), deletions), st.integers(0, 6), st.randoms(use_true_random=False))
def test_any_order_gives_what_all_writes_together_say(
    changes: list[Assigned], covering: Deletion | None, since: int, random: Random
) -> None:
    expected = model([change for change, _ in changes], covering)
    expected.assign(_model_assignment(changes, covering))
    assert absorbed(changes, covering) == expected
    shuffled = changes + changes[: len(changes) // 2]
    random.shuffle(shuffled)
    assert absorbed(shuffled, covering, since) == expected


@pytest.mark.slow
@given(histories, histories, histories)
def test_merging_is_a_join(first: list[Assigned], second: list[Assigned], third: list[Assigned]) -> None:
    a, b, c = absorbed(first), absorbed(second), absorbed(third)
    assert merge(a, b) == merge(b, a)
    assert merge(a, merge(b, c)) == merge(merge(a, b), c)
    assert merge(a, a) == a == merge(a, RowState())
    assert merge(merge(a, b), b) == merge(a, b)


@pytest.mark.slow
@given(histories, histories)
def test_merging_leaves_its_arguments_alone(first: list[Assigned], second: list[Assigned]) -> None:
    a, b = absorbed(first), absorbed(second)
    merged = merge(a, b)
    merged.shadow(Deletion(100, 0))
    assert (a, b) == (absorbed(first), absorbed(second))


OLD, NEW = Assignment(1, bytes(15) + b"\x01"), Assignment(2, bytes(15) + b"\x01")


def test_a_deletion_keeps_the_stream_of_an_equal_one_that_it_makes_needless() -> None:
    row = Change(op=Op.DELETE, table=PLAIN, token=0, key=b"", clustering=(), deletion=Deletion(3, 5))
    part = ColumnDeletion(tables.column(PLAIN, "l"), Deletion(3, 5))
    first = state_of(replace(row, op=Op.UPDATE, deletion=None, column_deletions=(part,)), NEW)
    second = state_of(row, OLD)
    assert merge(first, second) == merge(second, first)
    assert merge(first, second).assignment == NEW


@pytest.mark.parametrize("op", [Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.TRUNCATE])
def test_what_is_not_of_one_row_is_refused(op: Op) -> None:
    with pytest.raises(ValueError, match=op.value):
        state_of(Change(op=op, table=PLAIN, token=0, key=b""))


def change(name: str, path: bytes, at: int, value: bytes | None = b"") -> Change:
    cell = Cell(column(DECIMALS, name), path, at, None, 10 if value is None else None, value)
    return Change(op=Op.UPDATE, table=DECIMALS, token=0, key=b"", clustering=(b"",), cells=(cell,))


def shown(*changes: Change) -> object:
    state, turned = RowState(), RowState()
    for one in changes:
        state.absorb(state_of(one))
    for one in reversed(changes):
        turned.absorb(state_of(one))
    assert state == turned == merge(state, turned) == decode_state(encode_state(state))
    return visible(state, DECIMALS)


@pytest.mark.parametrize(
    ("changes", "expected", "why"),
    [
        ([change("s", ONE_0, 1), change("s", TWO, 1)], {"s": ["1.0", "2"]}, "two elements"),
        ([change("s", ONE_0, 1), change("s", ONE_00, 2)], {"s": ["1.00"]}, "the newer one's bytes"),
        ([change("s", ONE_00, 1), change("s", ONE_0, 2)], {"s": ["1.0"]}, "the newer one's bytes"),
        ([change("s", ONE_0, 1), change("s", ONE_00, 1)], {"s": ["1.00"]}, "at a tie the larger bytes"),
        ([change("s", ONE_0, 1), change("s", ONE, 2, None)], None, "removed by other bytes"),
        ([change("s", ONE_0, 3), change("s", ONE, 2, None)], {"s": ["1.0"]}, "removed before"),
        (
            [change("m", ONE_0, 2, b"new"), change("m", ONE, 1, b"old")],
            {"m": [{"key": "1.0", "value": "new"}]},
            "a map's keys",
        ),
        (
            [change("m", ONE_0, 1, b"a"), change("m", ONE_00, 1, b"b"), change("m", ONE, 1, b"a")],
            {"m": [{"key": "1.00", "value": "b"}]},
            "at a tie the larger value, and its path",
        ),
        (
            [change("n", _list, at) for at, _list in enumerate((b"\0\0\0\1\0\0\0\2\0\1", b"\0\0\0\1\0\0\0\1\1"))],
            {"n": [["1"]]},
            "inside of elements too",
        ),
    ],
)
def test_equal_elements_are_one(changes: list[Change], expected: object, why: str) -> None:
    assert shown(*changes) == expected, why


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("list<decimal>", True),
        ("set<text>", True),
        ("map<timeuuid, decimal>", True),
        ("set<decimal>", False),
        ("set<double>", False),
        ("map<boolean, int>", False),
        ("set<frozen<tuple<int, int>>>", False),
        ("wide", True),
    ],
)
def test_whose_paths_are_their_own_keys(text: str, own: bool) -> None:
    wide = UserTypeDefinition("wide", ("a",), ("int",))
    assert (path_key(parse_type(text, {"wide": wide})) is None) is own


decimals = st.sampled_from([ONE, ONE_0, ONE_00, TWO])
edits = st.builds(change, st.just("s"), decimals, st.integers(0, 3), st.sampled_from([b"", b"", None]))


@given(st.lists(edits, max_size=6))
def test_the_newest_write_of_equal_elements_holds(changes: list[Change]) -> None:
    said = [one.cells[0] for one in changes]
    expected: list[object] = []
    for equal in ((ONE, ONE_0, ONE_00), (TWO,)):
        writes = [cell for cell in said if cell.path in equal]
        newest = max((cell.written for cell in writes), default=-1)
        last = [cell for cell in writes if cell.written == newest]
        if last and all(cell.value is not None for cell in last):
            expected.append(codec(parse_type("decimal", {})).decode(max(cell.path or b"" for cell in last)))
    assert shown(*changes) == ({"s": expected} if expected else None)
