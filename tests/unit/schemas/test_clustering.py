"""Clustering keys of several columns, and ranges of rows as intervals of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Bound
from tailrace_schemas.clustering import clustering_key, range_limits
from tailrace_schemas.cql.order import sortable
from tailrace_schemas.table import Table
from tests.unit.schemas.cql.ordered import TYPES, Tree, compare, serialize, trees
from tests.unit.tables import table

Values = tuple[Tree, ...]
OPEN = Bound((), True)


@st.composite
def _clustered(draw: st.DrawFn) -> tuple[Table, list[Values]]:
    """A table with up to three clustering columns of either direction, and rows that share beginnings."""
    picked = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    named = {f"c{i}": f"{cql_type}{draw(st.sampled_from(('', ' desc')))}" for i, cql_type in enumerate(picked)}
    pools = [draw(st.lists(st.none() | trees(cql_type), min_size=1, max_size=3)) for cql_type in picked]
    rows = draw(st.lists(st.tuples(*(st.sampled_from(pool) for pool in pools)), min_size=2, max_size=5))
    return table({"p": "int"}, named), rows


def _bytes(made: Table, row: Values) -> tuple[bytes | None, ...]:
    pairs = zip(made.clustering, row, strict=False)
    return tuple(None if tree is None else serialize(column.type, tree) for column, tree in pairs)


def _compare(made: Table, left: Values, right: Values) -> int:
    """ClusteringComparator.compare, as far as both go."""
    for column, a, b in zip(made.clustering, left, right, strict=False):
        result = compare(column.type, a, b)
        if result:
            return -result if column.descending and a is not None and b is not None else result
    return 0


@pytest.mark.slow
@given(_clustered())
def test_keys_compare_as_the_rows_do(case: tuple[Table, list[Values]]) -> None:
    made, rows = case
    for left in rows:
        for right in rows:
            a, b = (clustering_key(made, _bytes(made, row)) for row in (left, right))
            assert (a > b) - (a < b) == _compare(made, left, right)


@pytest.mark.slow
@given(_clustered(), st.data())
def test_ranges_hold_the_rows_between_their_bounds(case: tuple[Table, list[Values]], data: st.DataObject) -> None:
    made, rows = case
    ends = [
        (data.draw(st.sampled_from(rows))[: data.draw(st.integers(0, len(made.clustering)))], data.draw(st.booleans()))
        for _ in range(2)
    ]
    start, end = (Bound(_bytes(made, prefix), inclusive) for prefix, inclusive in ends)
    low, high = range_limits(made, start, end)
    for row in rows:
        # A prefix compares equal to every row that starts with it, and then includes or excludes it.
        after = not start.values or _compare(made, row, ends[0][0]) > (-1 if start.inclusive else 0)
        before = not end.values or _compare(made, row, ends[1][0]) < (1 if end.inclusive else 0)
        assert (low <= clustering_key(made, _bytes(made, row)) < high) == (after and before)


def test_keys_are_components_in_a_row() -> None:
    made = table({"p": "int"}, {"a": "int", "b": "text desc"})
    one, text = bytes.fromhex("00000001"), b"x"
    a, b = made.clustering
    assert clustering_key(made, (one, text)) == sortable(a.type, one, False) + sortable(b.type, text, True)
    assert clustering_key(made, (one,)) == sortable(a.type, one, False)
    assert clustering_key(made, ()) == b""
    with pytest.raises(ValueError, match="2 clustering columns, not 3"):
        clustering_key(made, (one, text, one))


def test_the_whole_partition() -> None:
    made = table({"p": "int"}, {"a": "int"})
    low, high = range_limits(made, OPEN, OPEN)
    for value in (None, b"", bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff"):
        assert low <= clustering_key(made, (value,)) < high
    bare = table({"p": "int"})
    low, high = range_limits(bare, OPEN, OPEN)
    assert low <= clustering_key(bare, ()) < high


def test_bounds_in_storage_order() -> None:
    made = table({"p": "int"}, {"a": "int desc"})
    keys = [clustering_key(made, (value.to_bytes(4, "big"),)) for value in range(5)]
    # a > 1 AND a <= 3, stored from 3 down.
    low, high = range_limits(made, Bound((bytes((0, 0, 0, 3)),), True), Bound((bytes((0, 0, 0, 1)),), False))
    assert [low <= key < high for key in keys] == [False, False, True, True, False]
