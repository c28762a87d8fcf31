"""Rows that the log leaves open: which are read back, by which statement, and what of an answer is merged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace_schemas.change import Cell, Change, ColumnDeletion, Deletion, Marker, Op
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered, RecordId
from tailrace_spark.rowstate.row import merge, state_of
from tailrace_spark.rowstate.visible import visible
from tailrace_spark.snapshot.changes import GRACE_MICROS
from tailrace_spark.snapshot.doubts import Doubt, answer, doubts_of, statement_by_key
from tests.unit.spark.rowstate.counters import COUNTERS, Shard, context
from tests.unit.tables import table

ROWS = table({"k": "int"}, {"c": "int"}, static={"s": "text"}, regular={"v": "int", "t": "set<int>"})
ASKED = 1_714_000_000_000_000
KEY = (7).to_bytes(4, "big")


def change(
    of: Table = ROWS, op: Op = Op.UPDATE, *, values: dict[str, bytes | None] | None = None, **more: object
) -> Change:
    columns = {column.name: column for column in of.columns}
    cells = [Cell(columns[name], None, 5, None, None, value) for name, value in (values or {}).items()]
    made = Change(op=op, table=of, token=1, key=KEY, clustering=(KEY,) if of.clustering else (), cells=tuple(cells))
    return replace(made, **more)  # type: ignore[arg-type]  # of a change's fields


def delivered(of: Change, offset: int = 0) -> Delivered:
    return Delivered(RecordId("t", 0, offset), of)


def doubts(*changes: Change, counters: bool = True) -> list[Doubt]:
    tables = {str(ROWS), str(COUNTERS)}
    by_table = doubts_of([delivered(of, offset) for offset, of in enumerate(changes)], tables, counters=counters)
    return [doubt for rows in by_table.values() for doubt in rows]


@pytest.mark.parametrize(
    ("of", "open_"),
    [
        (change(values={"v": None}), True),
        (change(column_deletions=(ColumnDeletion(ROWS.regular[1], Deletion(5, 1)),)), True),
        (change(values={"v": b"\0\0\0\1"}), False),
        (change(values={"v": None}, marker=Marker(5)), False),
        (change(op=Op.INSERT, values={"v": None}, marker=Marker(5)), False),
        (change(op=Op.DELETE, deletion=Deletion(5, 1)), False),
        (change(op=Op.READ, values={"v": None}), False),
        (change(values={"s": None}, static=True, clustering=None), False),
        (change(table({"k": "int"}, regular={"v": "int"}, name="other"), values={"v": None}), False),
    ],
)
def test_rows_are_in_doubt_where_a_change_deletes_cells_and_sets_none(of: Change, open_: bool) -> None:
    assert bool(doubts(of)) is open_


def test_a_row_is_asked_for_once_by_its_key() -> None:
    [doubt] = doubts(change(values={"v": None}), change(values={"v": None}))
    assert doubt.delivered.record_id.offset == 1
    assert doubt.values == [KEY, KEY]
    assert statement_by_key(ROWS, ["v", "t"], static=False) == (
        f"SELECT k, v, t FROM {ROWS.keyspace}.{ROWS.name} WHERE k = ? AND c = ?"
    )
    assert statement_by_key(ROWS, ["s"], static=True).endswith("WHERE k = ? LIMIT 1")


def test_a_row_that_select_returns_without_a_cell_gets_a_marker_and_others_get_nothing() -> None:
    [doubt] = doubts(change(values={"v": None}))
    assert answer(doubt, ["v", "t"], None, ASKED) is None
    assert answer(doubt, ["v", "t"], [None, b"\0\0\0\0"], ASKED) is None
    read = answer(doubt, ["v", "t"], [None, None], ASKED)
    assert read is not None
    assert read.change.marker == Marker(ASKED - GRACE_MICROS)
    assert read.record_id == doubt.delivered.record_id
    assert visible(merge(state_of(doubt.delivered.change), state_of(read.change)), ROWS) == {}


def test_a_total_stands_for_all_shards_until_a_later_one_is_read() -> None:
    def value(count: int) -> bytes:
        return codec(CqlType("bigint")).encode(count)

    column = COUNTERS.regular[0]
    logged = change(COUNTERS, values={column.name: context(Shard(1, 90, 4))})
    [doubt] = doubts(logged)
    assert doubt.written == 5
    assert doubts(logged, counters=False) == []
    first, second = (answer(doubt, [column.name], [value(count)], ASKED + count) for count in (-3, 1000))
    assert first is not None
    assert second is not None
    states = [state_of(each) for each in (logged, second.change, first.change)]
    assert visible(merge(states[0], states[2]), COUNTERS) == {column.name: -3}
    assert visible(merge(merge(states[0], states[1]), states[2]), COUNTERS) == {column.name: 1000}
    # A deletion that is as late as the count takes both.
    state = merge(states[0], states[1])
    state.shadow(Deletion(5, 1))
    assert visible(state, COUNTERS) is None
