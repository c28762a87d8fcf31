from __future__ import annotations

from typing import Any

import pytest

from tailrace.demo.comparison import Comparison, compare
from tests.unit.tables import table

TABLE = table({"a": "text"}, {"b": "int"}, {"s": "boolean"}, {"v": "decimal"}, keyspace="shop", name="orders")
ROW: dict[str, Any] = {"a": "x", "b": 1, "s": None, "v": None}
WHERE = "shop.orders {'a': 'x', 'b': 1}"


def compared(selected: list[dict[str, Any]], stored: list[dict[str, Any]]) -> Comparison:
    return compare([(TABLE, selected, stored)])


def test_identical_whatever_the_order() -> None:
    rows = [ROW, {**ROW, "b": 2, "s": True}]
    found = compared(rows, rows[::-1])
    assert found.identical
    assert (found.total, found.rows) == (2, {"shop.orders": 2})


@pytest.mark.parametrize(
    ("selected", "stored", "words"),
    [
        ([ROW], [], [f"{WHERE}: only in Cassandra"]),
        ([], [ROW], [f"{WHERE}: only in SQLite"]),
        ([ROW], [{**ROW, "s": 1}], [f"{WHERE}: s is None in Cassandra, 1 in SQLite"]),
        ([{**ROW, "s": True}], [{"a": "x", "b": 1, "v": None}], [f"{WHERE}: s is True in Cassandra, None in SQLite"]),
        ([{**ROW, "b": None}], [{**ROW, "b": None}], []),
    ],
)
def test_differences(selected: list[dict[str, Any]], stored: list[dict[str, Any]], words: list[str]) -> None:
    found = compared(selected, stored)
    assert [str(difference) for difference in found.differences] == words
    assert found.identical is not bool(words)


def test_a_key_that_the_sink_has_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="2 rows under 1 keys"):
        compared([ROW], [ROW, ROW])
