"""Filters by tasks against filters by the driver: two tables whose columns are called alike, random changes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_spark.shaping.change_filters import Filters
from tests.integration.filtering import JUDGES, delivered
from tests.properties import examples
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = table(
    {"change": "text"}, {"day": "text", "size": "double"}, {"note": "text"}, {"total": "text"},
    keyspace="shop", name="words", table_id=uuid4(),
)  # fmt: skip
NUMBERS = table(
    {"id": "int"}, {"day": "date", "size": "timestamp desc"}, {"note": "text"}, {"total": "int"},
    keyspace="shop", name="numbers", table_id=uuid4(),
)  # fmt: skip
CONDITIONS = [
    {"shop.*": "day > '1970-01-02' AND size IS NOT NULL"},
    {
        "shop.words": "change = 'a' AND day <> 'b' AND size < 2",
        "*": "change.op <> 'truncate' AND id = 1 AND day IS NULL",
    },
    {"shop.words": "CAST(change AS INT) / (ASCII(day) - 97) > 0 OR size > 1", "*.numbers": "1 / (id - 1) IS NOT NULL"},
    {"shop.numbers": "columns.total > 1 OR year(size) > 1970"},
    {"shop.words": "Change IN ('a', '7')", "shop.numbers": "CHANGE.written > TIMESTAMP'1970-01-01 00:00:00.000003Z'"},
    {"shop.words": "missing = 1", "shop.*": "true"},
]
FAR = 2**62


def _any_change(
    keys: st.SearchStrategy[object],
    days: st.SearchStrategy[object],
    sizes: st.SearchStrategy[object],
    totals: st.SearchStrategy[object],
    log: Log,
) -> st.SearchStrategy[Change]:
    at, ends = st.integers(1, 6), st.tuples(days) | st.tuples(days, sizes)
    truncation = Change(op=Op.TRUNCATE, table=log.table, token=0, key=None, deletion=Deletion(5, 1))
    return st.one_of(
        st.builds(lambda k, d, s, t, a: log.insert((k,), (d, s), a, total=t), keys, days, sizes, totals, at),
        st.builds(lambda k, d, s, a: log.delete((k,), (d, s), a), keys, days, sizes, at),
        st.builds(lambda k, a: log.delete_partition((k,), a), keys, at),
        st.builds(lambda k, a: log.static((k,), a, note="n"), keys, at),
        st.builds(lambda k, low, high, a: log.delete_range((k,), low, high, a), keys, ends, ends, at),
        st.just(truncation),
    )


two_tables = st.lists(
    _any_change(
        st.sampled_from(["a", "b", "7"]), st.sampled_from(["a", "b", "1970-01-03"]), st.sampled_from([0.5, 2.5]),
        st.sampled_from(["x", None]), Log(WORDS),
    )
    | _any_change(
        st.sampled_from([1, 2]), st.sampled_from([1, 2, 19_000]), st.sampled_from([1, FAR]),
        st.sampled_from([1, 2, None]), Log(NUMBERS),
    ),
    min_size=1, max_size=40,
)  # fmt: skip


@pytest.mark.promise("stream.execution")
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(two_tables, st.sampled_from(CONDITIONS), st.booleans())
def test_tasks_and_the_driver_agree(
    spark: SparkSession, changes: list[Change], where: dict[str, str], written: bool
) -> None:
    outcomes = []
    for judge in JUDGES.values():
        filters = Filters(spark, where, written=written)
        piece = judge(filters, delivered(*changes))
        letters = sorted((one.record_id.offset, one.reason) for one in piece.dead_letters)
        outcomes.append(([one.record_id.offset for one in piece.changes], letters, dict(filters.left_out)))
    assert outcomes[0] == outcomes[1]
