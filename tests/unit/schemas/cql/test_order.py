"""Sortable forms against Cassandra's comparisons: by rule, and as Cassandra 5.0.9 itself answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.cql.order import sortable
from tailrace_schemas.cql.types import CqlType, UserTypeDefinition, parse_type
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError
from tests.unit.schemas.cql import driver
from tests.unit.schemas.cql.ordered import TYPES, Tree, compare, serialize, trees

# type, left, right, sign of AbstractType.compare(left, right): answers of Cassandra's own classes to random values.
RECORDED = Path(__file__).with_name("cassandra_5.0.9_compare.tsv")
USER_TYPES = {"u": UserTypeDefinition("u", ("a", "b", "c"), ("text", "int", "frozen<list<text>>"))}


def _sign(left: bytes, right: bytes) -> int:
    return (left > right) - (left < right)


def _form(cql_type: CqlType, tree: Tree, descending: bool = False) -> bytes:
    return sortable(cql_type, None if tree is None else serialize(cql_type, tree), descending)


_PAIRS = st.sampled_from(TYPES).flatmap(
    lambda t: st.tuples(st.just(t), st.none() | trees(t), st.none() | trees(t)),
)


@pytest.mark.slow
@given(_PAIRS)
def test_forms_compare_as_the_values_do(case: tuple[CqlType, Tree, Tree]) -> None:
    cql_type, left, right = case
    expected = compare(cql_type, left, right)
    assert _sign(_form(cql_type, left), _form(cql_type, right)) == expected
    # ReversedType turns values and empties round, not nulls.
    turned = expected if left is None or right is None else -expected
    assert _sign(_form(cql_type, left, True), _form(cql_type, right, True)) == turned


@pytest.mark.slow
@given(_PAIRS, st.booleans())
def test_no_component_begins_another(case: tuple[CqlType, Tree, Tree], descending: bool) -> None:
    cql_type, *pair = case
    left, right = (_form(cql_type, tree, descending) for tree in pair)
    assert 0x01 <= left[0] <= 0xFE
    assert left == right or not (left.startswith(right) or right.startswith(left))


def test_cassandra_answered_the_same() -> None:
    types: dict[str, CqlType] = {}
    wrong = []
    lines = RECORDED.read_text("ascii").splitlines()
    for line in lines:
        text, left, right, answer = line.split("\t")
        cql_type = types.setdefault(text, parse_type(text, USER_TYPES))
        forms = [sortable(cql_type, bytes.fromhex(data), False) for data in (left, right)]
        if _sign(*forms) != int(answer):
            wrong.append(line)
    assert wrong == []
    assert len(lines) > 1000
    assert len(types) > 30


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("decimal", ["0000000001", "000000010a", "0000000264", "000000020064"]),
        ("decimal", ["0000000000", "7fffffff00", "8000000000"]),
        ("varint", ["01", "0001", "00000001"]),
        ("boolean", ["01", "02", "ff"]),
        ("float", ["7fc00000", "7f800001", "ffc00000", "ffffffff"]),
        ("double", ["7ff8000000000000", "fff0000000000001"]),
        ("frozen<tuple<int, int>>", ["0000000400000001", "0000000400000001ffffffff"]),
    ],
)
def test_equal_values_are_one_row(text: str, values: list[str]) -> None:
    forms = {sortable(parse_type(text), bytes.fromhex(value), False) for value in values}
    assert len(forms) == 1


@pytest.mark.parametrize(
    ("text", "ascending"),
    [
        ("int", ["", "80000000", "ffffffff", "00000000", "7fffffff"]),
        ("tinyint", ["80", "ff", "00", "7f"]),
        ("date", ["", "00000000", "7fffffff", "80000000", "ffffffff"]),
        ("time", ["", "0000000000000000", "7fffffffffffffff", "ffffffffffffffff"]),
        ("boolean", ["", "00", "01"]),
        ("float", ["", "ff800000", "80000001", "80000000", "00000000", "00000001", "7f800000", "7fc00000"]),
        ("varint", ["", "ff7f", "80", "ff", "00", "01", "7f", "0080", "7fff", "008000"]),
        ("decimal", ["", "8000000085", "0000000085", "00000001ff", "7fffffff00", "7fffffff01", "0000000101"]),
        ("text", ["", "00", "0000", "0001", "01", "61", "6100", "6161", "ff"]),
        ("inet", ["", "00000000", "01000000", "01000000" + "00" * 12, "01000001"]),
        # By version; of version 1 the time counts, its low bits last.
        ("uuid", ["", "ffffffffffff0fff" + "ff" * 8, "ffffffff00001000" + "80" * 8, "0000000000011000" + "00" * 8]),
        ("uuid", ["00" * 6 + "4000" + "7f" + "00" * 7, "00" * 6 + "4000" + "80" + "00" * 7]),
        ("timeuuid", ["00" * 6 + "1000" + "80" + "00" * 7, "00" * 6 + "1000" + "7f" + "00" * 7]),
        ("frozen<list<int>>", ["", "00000000", "00000001ffffffff", "0000000100000000", "0000000100000004ffffffff"]),
        ("tuple<int, int>", ["", "ffffffff", "ffffffff0000000400000000", "00000000", "0000000400000000"]),
    ],
)  # fmt: skip
def test_known_orders(text: str, ascending: list[str]) -> None:
    cql_type = parse_type(text)
    forms = [sortable(cql_type, None, False), *(sortable(cql_type, bytes.fromhex(data), False) for data in ascending)]
    assert sorted(forms) == forms
    assert len(set(forms)) == len(forms)
    turned = [sortable(cql_type, bytes.fromhex(data), True) for data in ascending]
    assert sorted(turned, reverse=True) == turned
    assert sortable(cql_type, None, True) < min(turned)


def test_a_key_stays_when_its_user_type_grows() -> None:
    before = parse_type("frozen<u>", {"u": UserTypeDefinition("u", ("a",), ("int",))})
    after = parse_type("frozen<u>", {"u": UserTypeDefinition("u", ("a", "b"), ("int", "text"))})
    data = bytes.fromhex("0000000400000007")
    assert sortable(before, data, False) == sortable(after, data, False) == sortable(after, data + b"\xff" * 4, False)


def test_numbers_beyond_the_interpreters_limits() -> None:
    small, large = b"\x01" + bytes(3000), b"\x01" + bytes(3001)
    for kind, head in [("varint", b""), ("decimal", bytes(4))]:
        assert sortable(CqlType(kind), head + small, False) < sortable(CqlType(kind), head + large, False)


@pytest.mark.parametrize("cql_type", TYPES, ids=str)
def test_cut_values(cql_type: CqlType) -> None:
    sizes = {"boolean": 1, "date": 4, "smallint": 2, "time": 8, "tinyint": 1}
    size = cql_type.fixed_size or sizes.get(cql_type.kind)
    if size is None:
        return
    for cut in range(1, size):
        with pytest.raises(TruncatedError):
            sortable(cql_type, bytes(cut), False)
    with pytest.raises(CorruptError):
        sortable(cql_type, bytes(size + 1), False)


@given(driver.types(), st.binary(max_size=40))
def test_bytes_have_a_form_or_are_an_error(cql_type: CqlType, data: bytes) -> None:
    try:
        form = sortable(cql_type, data, False)
    except DecodeError:
        return
    assert 0x01 <= form[0] <= 0xFE
