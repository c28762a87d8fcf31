"""Breakages of the sink of another Cassandra cluster."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

WRITES: Final = "spark/tailrace_spark/sinks/cassandra/cql.py"
UNIT: Final = "unit/spark/sinks/cassandra/test_cql.py"
COPIES: Final = "integration/test_cassandra_sink.py"
EQUAL: Final = "Another Cassandra cluster answers `SELECT`, `WRITETIME` and `TTL` as the source does"

BREAKAGES: Final = (
    Breakage(
        name="a-copy-that-is-written-now",
        promise=EQUAL,
        file=WRITES,
        old='    return struct.pack(">q", times[0]), struct.pack(">i", times[1])\n',
        new='    return struct.pack(">q", times[0] + 1), struct.pack(">i", times[1])\n',
        needs=Needs.NODE,
        reds=(
            Red(UNIT, "test_a_row_that_was_inserted_is_one_insert", ASSERTED),
            Red(COPIES, "test_a_second_keyspace_answers_as_the_source_does[lasting-driver]", ASSERTED),
            Red(COPIES, "test_a_second_keyspace_answers_as_the_source_does[lasting-tasks]", ASSERTED),
        ),
    ),
    Breakage(
        name="a-table-there-says-what-expires",
        promise=EQUAL,
        file=WRITES,
        old="    return ((cell.written, seconds_left), cell.value) if seconds_left else ((cell.written, 0), None)\n",
        new="    return ((cell.written, seconds_left), cell.value)\n",
        needs=Needs.NOTHING,
        reds=(Red(UNIT, "test_what_has_expired_is_deleted_and_a_marker_lives_a_second", ASSERTED),),
    ),
    Breakage(
        name="ranges-of-descending-columns-as-of-ascending-ones",
        promise=EQUAL,
        file=WRITES,
        old="    if column_index < len(table.clustering) and table.clustering[column_index].descending:\n",
        new="    if column_index < len(table.clustering) and table.clustering[0].descending:\n",
        needs=Needs.NOTHING,
        reds=(Red(UNIT, "test_slices_have_the_rows_of_the_range", ASSERTED),),
    ),
    Breakage(
        name="neighbours-are-left-out",
        promise=EQUAL,
        file="spark/tailrace_spark/sinks/cassandra/requests.py",
        old="        together += mutation.statements\n",
        new="        together = list(mutation.statements)\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/cassandra/test_requests.py",
                "test_every_mutation_is_whole_in_one_request",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="the-source-writes-itself",
        promise="the source's own tables are never written",
        file="spark/tailrace_spark/sinks/cassandra/tables.py",
        old="    if table_id == table.id:\n",
        new="    if table_id.version == table.id:\n",
        needs=Needs.NODE,
        reds=(Red(COPIES, "test_its_own_source_is_never_written", "DID NOT RAISE"),),
    ),
)
