"""Changes as CQL with their own times: which statements, with which values; a live node takes them elsewhere."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tailrace_schemas.change import Bound, Change
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.table import DroppedColumn
from tailrace_spark.sinks.cassandra.cql import ABSENT, Slice, Writes, check_writable, slices
from tests.support.expiry import expiring
from tests.unit.spark.cassandra import Log
from tests.unit.spark.changes import column
from tests.unit.tables import table

NOW = 1_700_000_000
WIDE = table(
    {"p": "int"}, {"c": "int"}, {"s": "int"},
    {"v": "int", "w": "int", "m": "map<int, int>", "e": "set<text>", "u": "addr", "l": "list<int>"}, name="t",
)  # fmt: skip
LOG = Log(WIDE)


def i32(*values: int) -> tuple[bytes, ...]:
    return tuple(struct.pack(">i", value) for value in values)


def i64(value: int) -> bytes:
    return struct.pack(">q", value)


def said(change: Change, now: int = NOW) -> list[tuple[str, tuple[object, ...]]]:
    """The statements without what all have: the table and where."""
    mutation = Writes(change.table, "ks.t").mutation(change, now)
    return [] if mutation is None else list(mutation.statements)


def test_a_row_that_was_inserted_is_one_insert() -> None:
    [(statement, values)] = said(LOG.insert((1,), (2,), 10, v=3))
    assert statement == "INSERT INTO ks.t (p, c, v, w) VALUES (?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?"
    assert values == (*i32(1, 2, 3), ABSENT, i64(10), *i32(0))


def test_an_update_has_no_marker_and_a_null_is_a_deletion_of_its_time() -> None:
    [(statement, values)] = said(LOG.update((1,), (2,), 10, v=3, w=None))
    assert statement == "UPDATE ks.t USING TIMESTAMP ? AND TTL ? SET v = ?, w = ? WHERE p = ? AND c = ?"
    assert values == (i64(10), *i32(0, 3), None, *i32(1, 2))


def test_cells_of_several_times_are_several_statements() -> None:
    change = LOG.insert((1,), (2,), 10, v=3, w=4)
    later = replace(change.cells[1], written=11, ttl=60, expires=NOW + 50)
    (first, values), (second, others) = said(replace(change, cells=(change.cells[0], later)))
    assert (first[:6], second[:6]) == ("INSERT", "UPDATE")
    assert values[2:] == (*i32(3), ABSENT, i64(10), *i32(0))
    assert others[:4] == (i64(11), *i32(50), ABSENT, *i32(4))


def test_what_has_expired_is_deleted_and_a_marker_lives_a_second() -> None:
    cells = [values for text, values in said(expiring(LOG.update((1,), (2,), 10, v=3), NOW, 60))]
    assert cells == [(i64(10), *i32(0), None, ABSENT, *i32(1, 2))]
    change = expiring(LOG.insert((1,), (2,), 10, v=3, e={"a": ""}), NOW, 60)
    statements = said(change, NOW - 1)
    assert {values[-3:] for text, values in statements if text.startswith("INSERT")} == {(ABSENT, i64(10), *i32(1))}
    [insert, elements] = [one for one in said(change) if not one[0].startswith("DELETE")]
    assert insert[1][2:] == (None, ABSENT, i64(10), *i32(1))
    assert "SET e = e - ?" in elements[0]


def test_ends_of_a_range_that_compare_as_equal_are_one_value() -> None:
    """From (1.0, 5) to (1.00, 9): cut at either, all from 5 on, and all up to 9, would be deleted."""
    priced = table({"p": "int"}, {"a": "decimal", "b": "int"}, regular={"v": "int"})
    low, high, five, nine = b"\0\0\0\1\x0a", b"\0\0\0\2\x64", *i32(5, 9)
    assert slices(priced, Bound((low, five), True), Bound((high, nine), True)) == [
        Slice((low,), (five, True), (nine, True))
    ]


def test_a_clock_that_is_behind_makes_no_ttl_that_is_refused() -> None:
    longest = 630_720_000
    [(_, values)] = said(expiring(LOG.insert((1,), (2,), 10, v=3), NOW + longest, longest), NOW - 2)
    assert values[-1:] == i32(longest)


def test_elements_are_written_and_removed_one_by_one() -> None:
    change = LOG.update((1,), (2,), 10, m={5: 6, 7: 8}, e={"": "", "x": ""}, u={"zip": 9})
    found = {text.partition(" SET ")[2].partition(" WHERE")[0]: values for text, values in said(change)}
    assert found["m = m + ?"][2] == b"".join([*i32(2), *(b"\0\0\0\4" + one for one in i32(5, 6, 7, 8))])
    assert found["e = e + ?"][2] == b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1x"
    assert found["u.zip = ?"] == (i64(10), *i32(0, 9), *i32(1, 2))
    gone = replace(change, cells=tuple(replace(cell, value=None) for cell in change.cells))
    found = {text.partition(" SET ")[2].partition(" WHERE")[0]: values for text, values in said(gone)}
    assert found["m = m - ?"][2] == b"".join([*i32(2), *(b"\0\0\0\4" + one for one in i32(5, 7))])
    assert found["u.zip = ?"][2] is None


def test_an_overwritten_collection_is_deleted_a_microsecond_before() -> None:
    deletion, elements = said(LOG.update((1,), (2,), 10, e={"=": "", "x": ""}))
    assert deletion == ("DELETE e FROM ks.t USING TIMESTAMP ? WHERE p = ? AND c = ?", (i64(9), *i32(1, 2)))
    assert elements[1][0] == i64(10)


def test_deletions_have_their_times() -> None:
    assert said(LOG.delete((1,), (2,), 10)) == [
        ("DELETE FROM ks.t USING TIMESTAMP ? WHERE p = ? AND c = ?", (i64(10), *i32(1, 2)))
    ]
    assert said(LOG.delete_partition((1,), 10)) == [
        ("DELETE FROM ks.t USING TIMESTAMP ? WHERE p = ?", (i64(10), *i32(1)))
    ]
    assert said(LOG.delete_range((1,), (2,), (5,), 10, "[)")) == [
        ("DELETE FROM ks.t USING TIMESTAMP ? WHERE p = ? AND c >= ? AND c < ?", (i64(10), *i32(1, 2, 5)))
    ]
    [(static, values)] = said(LOG.static((1,), 10, s=4))
    assert static == "UPDATE ks.t USING TIMESTAMP ? AND TTL ? SET s = ? WHERE p = ?"
    assert values == (i64(10), *i32(0, 4, 1))


def test_a_column_that_was_dropped_and_made_again_keeps_nothing_from_before() -> None:
    again = replace(WIDE, dropped=(DroppedColumn(column(WIDE, "v"), 100),))
    [(_, values)] = said(Log(again).update((1,), (2,), 100, v=3, w=4))
    assert values[2:4] == (ABSENT, *i32(4))
    assert said(Log(again).update((1,), (2,), 100, v=3)) == []
    assert said(Log(again).update((1,), (2,), 101, v=3)) != []


@pytest.mark.promise("cassandra.unwritable")
def test_tables_that_cql_cannot_write_say_why() -> None:
    with pytest.raises(UnsupportedError, match=r"l is a list that is not frozen.*lists = \"map\""):
        check_writable(WIDE, lists=False)
    check_writable(WIDE, lists=True)
    with pytest.raises(UnsupportedError, match="counters"):
        check_writable(replace(WIDE, flags=frozenset({"compound", "counter"})), lists=True)
    with pytest.raises(UnsupportedError, match=r"materialized view, .*; write its base table"):
        check_writable(replace(WIDE, flags=frozenset({"compound", "view", "strict"})), lists=True)
    check_writable(replace(WIDE, flags=frozenset({"compound", "view"})), lists=True)
    for compact in (set[str](), {"dense"}, {"dense", "compound"}, {"super"}):
        with pytest.raises(UnsupportedError, match="COMPACT STORAGE"):
            check_writable(replace(WIDE, flags=frozenset(compact)), lists=True)
    assert slices(replace(WIDE, static=()), Bound((), True), Bound((), True)) == [Slice(())]


ORDERS = list(product((False, True), repeat=3))


@pytest.mark.promise("cassandra.select")
@given(
    st.sampled_from(ORDERS),
    st.lists(st.integers(0, 2), max_size=3), st.lists(st.integers(0, 2), max_size=3),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_slices_have_the_rows_of_the_range(
    order: tuple[bool, ...], low: list[int], high: list[int], low_in: bool, high_in: bool, static: bool
) -> None:
    """Each row of a small grid, whatever the orders of the columns; where there is a static row, that alone is left."""
    key = {name: f"int{' desc' if down else ''}" for name, down in zip("abc", order, strict=True)}
    of = table({"p": "int"}, key, {"s": "int"} if static else {})
    start, end = Bound(i32(*low), low_in or not low), Bound(i32(*high), high_in or not high)

    def rank(values: tuple[int, ...]) -> list[int]:
        return [-value if down else value for value, down in zip(values, order, strict=False)]

    def within(row: tuple[int, ...]) -> bool:
        first, last = rank(tuple(low)), rank(tuple(high))
        head, tail = rank(row)[: len(first)], rank(row)[: len(last)]
        return (head > first or (head == first and start.inclusive)) and (
            tail < last or (tail == last and end.inclusive)
        )

    def chosen(row: tuple[int, ...], one: Slice) -> bool:
        at, own = len(one.prefix), i32(*row)
        if own[:at] != one.prefix:
            return False
        lower = one.lower is None or own[at] > one.lower[0] or (own[at] == one.lower[0] and one.lower[1])
        return lower and (one.upper is None or own[at] < one.upper[0] or (own[at] == one.upper[0] and one.upper[1]))

    common = min(len(low), len(high))
    assume(rank(tuple(low))[:common] <= rank(tuple(high))[:common])  # as every range of a log
    found = slices(of, start, end)
    assert not static or Slice(()) not in found
    rows = list(product(range(3), repeat=3))
    assert {row for row in rows if any(chosen(row, one) for one in found)} == {row for row in rows if within(row)}
