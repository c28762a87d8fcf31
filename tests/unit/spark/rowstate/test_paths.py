"""Elements that Cassandra holds for one in spite of other bytes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Cell, Change, Op
from tailrace_schemas.cql.types import UserTypeDefinition, parse_type
from tailrace_schemas.cql.values import codec
from tailrace_spark.rowstate.codec import decode_state, encode_state
from tailrace_spark.rowstate.paths import path_key
from tailrace_spark.rowstate.row import RowState, merge, state_of
from tailrace_spark.rowstate.visible import visible
from tests.properties import examples
from tests.unit.spark.changes import column
from tests.unit.tables import table

DECIMALS = table(
    {"p": "int"},
    {"c": "int"},
    regular={"s": "set<decimal>", "m": "map<decimal, text>", "n": "set<frozen<list<varint>>>"},
)
ONE, ONE_0, ONE_00, TWO = (codec(parse_type("decimal", {})).encode(value) for value in ("1", "1.0", "1.00", "2"))


def change(name: str, path: bytes, at: int, value: bytes | None = b"") -> Change:
    cell = Cell(column(DECIMALS, name), path, at, None, 10 if value is None else None, value)
    return Change(op=Op.UPDATE, table=DECIMALS, token=0, key=b"", clustering=(b"",), cells=(cell,))


def shown(*changes: Change) -> object:
    state, turned = RowState(), RowState()
    for one in changes:
        state.absorb(state_of(one))
    for one in reversed(changes):
        turned.absorb(state_of(one))
    assert state == turned == decode_state(encode_state(state))
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


@pytest.mark.slow
@settings(max_examples=examples(16))
@given(st.lists(edits, max_size=6), st.randoms(use_true_random=False))
def test_any_order_gives_one_state(changes: list[Change], random: Random) -> None:
    state = RowState()
    for one in changes:
        state.absorb(state_of(one))
    shuffled = changes + changes[: len(changes) // 2]
    random.shuffle(shuffled)
    other = RowState()
    for one in shuffled:
        other.absorb(state_of(one))
    assert other == state == merge(state, other)


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
