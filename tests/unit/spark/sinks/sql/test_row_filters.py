"""Rows filtered by columns outside the key: the table is what the database's own WHERE finds in one of all rows."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_spark.shaping.conditions import split_conditions
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.properties import examples
from tests.unit.spark.cassandra import Log, source
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.tables import table

ORDERS = table(
    {"k": "text"}, {"c": "int"}, {}, {"total": "int", "name": "text", "day": "date", "tags": "set<text>"},
    keyspace="shop", name="orders", table_id=UUID(int=11),
)  # fmt: skip
WHOLE = replace(ORDERS, id=UUID(int=12))
LOG = Log(ORDERS)
CONDITIONS = [
    ("row.total > 1", "total > 1"),
    ("row.total <> 1 AND row.name IS NOT NULL", "total <> 1 AND name IS NOT NULL"),
    ("NOT (row.total = 1 OR row.name = 'a')", "NOT (total = 1 OR name = 'a')"),
    ("row.name LIKE '%b_' OR row.total IN (0, 2)", "name LIKE '%b_' OR total IN (0, 2)"),
    ("row.day BETWEEN DATE'1970-01-02' AND DATE'1970-01-03'", "day BETWEEN '1970-01-02' AND '1970-01-03'"),
    ("row.total NOT IN (0, 1) OR NOT row.name LIKE 'a%'", "total NOT IN (0, 1) OR NOT name LIKE 'a%'"),
    ("2 >= row.total AND row.day < DATE'1970-01-03'", "2 >= total AND day < '1970-01-03'"),
]
TRUNCATION = Change(
    op=Op.TRUNCATE, table=ORDERS, token=0, key=None, deletion=Deletion(4, 4), digest=bytes(16), source=source()
)

times, numbers = st.integers(1, 8), st.integers(1, 3)
values = st.fixed_dictionaries(
    {},
    optional={
        "total": st.sampled_from([0, 1, 2, 3, None]),
        "name": st.sampled_from(["a", "abc", "xbz", "", None]),
        "day": st.sampled_from([0, 1, 2, 3, None]),
        "tags": st.sampled_from([{"t": True}, {"=": None, "u": True}, None]),
    },
)


def expiring(change: Change, seconds: int | None) -> Change:
    """The same, whose values and marker end at that second of the epoch, where one is said."""
    if seconds is None:
        return change
    cells = tuple(cell if cell.value is None else replace(cell, ttl=seconds, expires=seconds) for cell in change.cells)
    marker = None if change.marker is None else replace(change.marker, ttl=seconds, expires=seconds)
    return replace(change, cells=cells, marker=marker)


one_change = st.one_of(
    st.builds(
        lambda op, c, at, given_values, seconds: expiring(getattr(LOG, op)(("k",), (c,), at, **given_values), seconds),
        st.sampled_from(["insert", "update", "update"]), numbers, times, values, st.sampled_from([None, None, 20, 40]),
    ),
    st.builds(lambda c, at: LOG.delete(("k",), (c,), at), numbers, times),
    st.builds(lambda at: LOG.delete_partition(("k",), at), times),
    st.builds(lambda low, high, at: LOG.delete_range(("k",), (low,), (high,), at), numbers, numbers, times),
    st.just(TRUNCATION),
)  # fmt: skip


def filtered(sink: SqlSink, where: str) -> SqlSink:
    rows, changes = split_conditions({"shop.*": where}, "stream.where")
    assert not changes
    sink.filter_rows(rows)
    return sink


@pytest.mark.slow
@pytest.mark.promise("shaping.row-filter")
@settings(max_examples=examples(10), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(one_change, min_size=1, max_size=5), min_size=1, max_size=6), st.sampled_from(CONDITIONS))
def test_the_table_is_what_where_finds_in_one_of_all_rows(
    database: Database, batches: list[list[Change]], condition: tuple[str, str]
) -> None:
    """After every batch, and after every sweep, while values expire; a deletion may come before what it covers."""
    now = [10]
    database.clear()
    part, whole = (SqlSink(database.url, f"{name}_{{table}}", clock=lambda: now[0]) for name in ("part", "whole"))
    with closing(filtered(part, condition[0])), closing(whole):
        for second, batch in enumerate(batches):
            now[0] = 10 + 10 * second
            write_here(part, [piece(batch)])
            write_here(whole, [piece([replace(change, table=WHOLE) for change in batch])])
            _compare(database, condition[1])
            now[0] += 5
            part.sweep()
            whole.sweep()
            _compare(database, condition[1])


def _compare(database: Database, where: str) -> None:
    if "part_orders" not in database.names():
        assert "whole_orders" not in database.names()
        return
    columns = "k, c, total, name, day, tags"
    if database.engine.dialect.paramstyle in {"format", "pyformat"}:
        where = where.replace("%", "%%")  # else the driver takes it for a parameter's place
    wanted = database.select(f"SELECT {columns} FROM whole_orders WHERE {where} ORDER BY c")
    assert database.select(f"SELECT {columns} FROM part_orders ORDER BY c") == wanted
