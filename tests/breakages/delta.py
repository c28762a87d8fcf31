"""Breakages of what makes a Delta sink fast: states merged in columns, rows appended where none is there."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Red, breakage
from tests.breakages.mutations import argument, drop, insert, replace, unwrap

ROWS: Final = "unit/spark/sinks/lake/test_fast_rows.py"
CURRENT_TASKS: Final = "unit/spark/sinks/lake/test_current_tasks.py"

BREAKAGES: Final = {
    "an-error-of-one-table-ends-the-batch": breakage(
        "an exception of any type is its table's: all other tables go on",
        "tailrace_spark.sinks.table_faults:is_of_table",
        argument("isinstance(error, Exception)", 1, "ValueError"),
        Red("unit/spark/sinks/test_table_faults.py", "test_an_exception_of_any_type_is_its_table_s[KeyError]"),
    ),
    "names-go-by-the-definition-s-order": breakage(
        "names that differ by case stay what they are, whatever columns come later",
        "tailrace_spark.sinks.lake.names:_distinct",
        replace("name not in own_names", "not index"),
        Red("unit/spark/sinks/lake/test_names.py", "test_a_name_stays_when_one_comes_that_differs_by_case"),
    ),
    "what-a-partition-deletion-covers-is-merged-as-plain": breakage(
        "a table reads as SELECT, whatever comes in what order how often",
        "tailrace_spark.sinks.lake.fast_rows:StoredRows.intricate",
        drop("clustering < ROW"),
        Red(ROWS, "test_states_and_rows_are_those_of_objects"),
    ),
    "definitions-are-placed-by-what-was-there-before": breakage(
        "every value comes back bit for bit, and columns come and go",
        "tailrace_spark.sinks.lake.staging:_OpenedTables._change",
        drop("self._tables.pop(name, None)"),
        Red(
            "unit/spark/sinks/delta/test_history.py",
            "test_a_column_that_two_definitions_of_a_batch_add_with_other_types",
            "ServiceError: .* has gone",
        ),
    ),
    "tasks-files-are-committed-on-another-state": breakage(
        "two attempts of Spark at a task leave the rows of one",
        "tailrace_spark.sinks.lake.staging:_commit",
        drop("noted(stored, share.noted) != share.noted"),
        Red("unit/spark/sinks/lake/test_history_tasks.py", "test_two_attempts_at_a_partition_come_out_as_one[delta]"),
    ),
    "files-that-were-compacted-are-replaced": breakage(
        "two attempts of Spark at a task leave the rows of one",
        "tailrace_spark.sinks.delta.store:StoredTable.removals",
        insert(
            "paths = [path for path in paths if path in existing]",
            before="if missing := ...: ...",
        ),
        Red(CURRENT_TASKS, "test_files_that_were_compacted_meanwhile_are_not_replaced[delta]", "DID NOT RAISE"),
    ),
    "new-tables-have-the-buckets-of-the-setting": breakage(
        "a task replaces files of its own Kafka partition's keys alone",
        "tailrace_spark.sinks.lake.current:LakeCurrent._writer",
        unwrap("_multiple(...)", "self._buckets"),
        Red(CURRENT_TASKS, "test_a_task_replaces_files_of_its_own_buckets_alone[delta]", "HereOnlyError"),
    ),
    "tasks-go-on-where-the-state-is-ahead": breakage(
        "a table is healed after a crash between any two commits",
        "tailrace_spark.sinks.lake.current:FollowedTables.require_ready",
        drop("not followed.is_shown"),
        Red(
            CURRENT_TASKS,
            "test_a_driver_that_dies_around_its_commits_leaves_what_the_batch_makes_good[delta-2]",
            "DID NOT RAISE",
        ),
    ),
    "another-versions-record-is-read": breakage(
        "a table of another version ends the stream",
        "tailrace_spark.merge.table_record:decode_record",
        drop("require_format(...)"),
        Red("unit/spark/merge/test_table_record.py", "test_another_versions_record_is_refused", "DID NOT RAISE"),
    ),
}
