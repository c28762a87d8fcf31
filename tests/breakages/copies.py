"""Breakages of the sink of another Cassandra cluster."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import argument, replace

UNIT: Final = "unit/spark/sinks/cassandra/test_cql.py"
COPIES: Final = "integration/test_cassandra_sink.py"
EQUAL: Final = "Another Cassandra cluster answers `SELECT`, `WRITETIME` and `TTL` as the source does"

BREAKAGES: Final = {
    "a-copy-that-is-written-now": breakage(
        EQUAL,
        "tailrace_spark.sinks.cassandra.cql:_packed",
        argument("struct.pack('>q', times[0])", 1, "times[0] + 1"),
        Red(UNIT, "test_a_row_that_was_inserted_is_one_insert"),
        Red(COPIES, "test_a_second_keyspace_answers_as_the_source_does[lasting-driver]"),
        Red(COPIES, "test_a_second_keyspace_answers_as_the_source_does[lasting-tasks]"),
        needs=Needs.NODE,
    ),
    "ranges-of-descending-columns-as-of-ascending-ones": breakage(
        EQUAL,
        "tailrace_spark.sinks.cassandra.cql:_in_cql",
        replace("table.clustering[column_index]", "table.clustering[0]"),
        Red(UNIT, "test_slices_have_the_rows_of_the_range"),
    ),
    "the-source-writes-itself": breakage(
        "the source's own tables are never written",
        "tailrace_spark.sinks.cassandra.tables:_identify",
        replace("table_id == table.id", "table_id.version == table.id"),
        Red(COPIES, "test_its_own_source_is_never_written", "DID NOT RAISE"),
        needs=Needs.NODE,
    ),
}
