"""Many definitions of one wide table share what they have in common: memory follows what was altered."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tailrace.history.records import HistoryRecord, history_of
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table, sharing
from tests.support.schema import rows_of
from tests.unit.tables import table

COLUMNS = {f"c{number:04}": "map<int, frozen<addr>>" for number in range(200)}


def wide(more: int) -> Table:
    """With so many columns added by ALTERs."""
    return table({"k": "int"}, {"c": "text desc"}, {"s": "text"}, COLUMNS | {f"z{n}": "int" for n in range(more)})


@pytest.mark.slow
def test_definitions_in_a_row_share_their_columns() -> None:
    """All but those that are new; each is what it was."""
    records = [HistoryRecord(Position(1, 1, n), wide(n).id, ("ks", "t"), rows_of(wide(n))) for n in range(8)]
    timeline = history_of(records).timelines[wide(0).id]
    assert timeline.tables == tuple(wide(more) for more in range(8))
    for before, after in pairwise(timeline.tables):
        own = {id(column) for column in (*before.key, *before.columns)}
        assert [c.name for c in (*after.key, *after.columns) if id(c) not in own] == [f"z{len(after.regular) - 201}"]


def test_a_column_that_changed_is_its_own() -> None:
    before, after = (table({"k": "int"}, regular={"v": of, "w": "int"}) for of in ("int", "text"))
    shared = sharing(before, after)
    assert shared == after
    assert [c is d for c, d in zip(shared.columns, before.columns, strict=True)] == [False, True]
