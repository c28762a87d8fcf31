"""What a filter may ask of a change: which columns of the key are known, and everything in Spark's types."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_spark.shaping.filter_columns import FilterColumns, known_key_columns
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

ORDERS = table(
    {"country": "text", "id": "int"},
    {"day": "date", "at": "timestamp desc"},
    {"note": "text"},
    {"total": "int", "tags": "set<text>", "ship": "frozen<addr>"},
    keyspace="shop",
    name="orders",
)
LOG = Log(ORDERS)
KEY = ("de", 7)
TRUNCATION = Change(op=Op.TRUNCATE, table=ORDERS, token=0, key=None, deletion=Deletion(5, 1))


@pytest.mark.promise("shaping.deletions")
@pytest.mark.parametrize(
    ("change", "known"),
    [
        (LOG.insert(KEY, (1, 2), 5), 4),
        (LOG.update(KEY, (1, 2), 5, total=1), 4),
        (LOG.delete(KEY, (1, 2), 5), 4),
        (LOG.static(KEY, 5, note="n"), 2),
        (LOG.delete_partition(KEY, 5), 2),
        (LOG.delete_range(KEY, (1,), (1,), 5), 3),
        (LOG.delete_range(KEY, (1, 2), (1,), 5), 3),
        (LOG.delete_range(KEY, (1, 2), (1, 2), 5), 4),
        (LOG.delete_range(KEY, (1,), (2,), 5), 2),
        (LOG.delete_range(KEY, (), (1,), 5), 2),
        (TRUNCATION, 0),
    ],
    ids=lambda value: value.op.value if isinstance(value, Change) else str(value),
)
def test_known_is_what_all_rows_of_a_change_have_in_common(change: Change, known: int) -> None:
    assert known_key_columns(change) == known
    [row] = FilterColumns(ORDERS, written=False).rows([change]).to_pylist()
    values = [row[name] for name in ("country", "id", "day", "at")]
    wanted = ["de", 7, date(1970, 1, 2), datetime(1970, 1, 1, 0, 0, 0, 2000, UTC)]
    assert values == wanted[:known] + [None] * (4 - known)
    assert FilterColumns(ORDERS, written=False).named(known) == {*["country", "id", "day", "at"][:known], "change"}


def test_a_table_without_clustering_columns_is_known_whole_by_its_partition_key() -> None:
    plain = Log(table({"id": "int"}, regular={"v": "text"}))
    assert [known_key_columns(one) for one in (plain.insert((1,), (), 5), plain.delete_partition((1,), 5))] == [1, 1]


def test_what_kind_of_change_it_is() -> None:
    asked = FilterColumns(ORDERS, written=False)
    found = asked.rows([LOG.insert(KEY, (1, 2), 5), LOG.static(KEY, 6, note="n"), TRUNCATION]).to_pylist()
    assert [row["change"]["op"] for row in found] == ["insert", "update", "truncate"]
    assert [row["change"]["static"] for row in found] == [False, True, False]
    assert [row["change"]["written"].microsecond for row in found] == [5, 6, 5]
    assert found[0]["change"]["keyspace"] == "shop"
    assert found[0]["change"]["table"] == "orders"
    assert [row["change"]["origin"] for row in found] == ["log", "log", None]


def test_what_a_change_writes_is_there_for_logs_alone_and_only_what_is_one_cell() -> None:
    written: Any = FilterColumns(ORDERS, written=True)
    assert "columns" not in FilterColumns(ORDERS, written=False).schema.names
    assert [field.name for field in written.schema.field("columns").type] == ["note", "ship", "total"]
    ship = {"street": "s", "zip": 1, "tags": ["a"]}
    found = written.rows([LOG.update(KEY, (1, 2), 5, total=3, ship=ship), LOG.delete(KEY, (1, 2), 5)]).to_pylist()
    assert [row["columns"] for row in found] == [
        {"note": None, "ship": ship, "total": 3},
        {"note": None, "ship": None, "total": None},
    ]


def test_a_key_column_hides_what_is_called_like_it() -> None:
    odd = table({"change": "int"}, {"Columns": "int"}, regular={"v": "int"})
    asked = FilterColumns(odd, written=True)
    assert asked.schema.names == ["change", "Columns"]
    assert asked.rows([Log(odd).insert((1,), (2,), 5, v=3)]).to_pylist() == [{"change": 1, "Columns": 2}]


def test_a_moment_that_spark_cannot_have_is_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid):
        FilterColumns(ORDERS, written=False).rows([LOG.insert(KEY, (1, 2**62), 5)])
