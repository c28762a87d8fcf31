"""Definitions of one table from several agents, merged whatever order they come in."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from uuid import UUID

import pytest

from tailrace_schemas.table import Table
from tailrace_spark.merge.definitions import merge_definitions
from tests.unit.tables import table

KEY = {"id": "int"}
FIRST = table(KEY, regular={"v": "int"})
ADDED = table(KEY, regular={"v": "int", "w": "text"})
DROPPED = table(KEY, regular={"w": "text"}, dropped={"v": ("int", 20)})
AGAIN = table(KEY, regular={"v": "text", "w": "text"}, dropped={"v": ("int", 20)})
TWICE = table(KEY, regular={"w": "text"}, dropped={"v": ("text", 30)})


@pytest.mark.parametrize(
    ("history", "latest"),
    [
        ([FIRST, ADDED], ADDED),
        ([FIRST, ADDED, DROPPED], DROPPED),
        ([FIRST, ADDED, DROPPED, AGAIN], AGAIN),
        ([FIRST, DROPPED, AGAIN, TWICE], TWICE),
    ],
)
def test_the_latest_definition_comes_out_of_every_order(history: list[Table], latest: Table) -> None:
    for order in permutations(history):
        merged = order[0]
        for definition in order[1:]:
            merged = merge_definitions(merged, definition)
        assert merged == latest


def test_renamed_keys_and_fields_have_the_newer_ones_names() -> None:
    before = table({"k": "int"}, {"c": "int desc"}, regular={"v": "tuple<int>"})
    after = table({"kk": "int"}, {"C": "int desc"}, regular={"c": "int", "v": "tuple<text>"})
    assert merge_definitions(before, after) == after
    assert merge_definitions(after, before, second_newer=False) == after
    wider = table({"k": "int"}, {"c": "int desc"}, regular={"v": "tuple<int, int>"})
    assert merge_definitions(wider, before) == merge_definitions(before, wider) == wider


def test_two_tables_are_not_merged() -> None:
    with pytest.raises(ValueError, match="two table ids"):
        merge_definitions(FIRST, replace(FIRST, id=UUID(int=1)))
