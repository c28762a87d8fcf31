"""Breakages of what a stream gives its sink, of the check of its settings, of what it tells, of dead letters."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import constant, drop, replace, unwrap

KNOWN: Final = "unit/spark/shaping/test_change_filters.py"
FILTERED: Final = "integration/test_stream_tasks.py"
CURRENT: Final = "unit/spark/sinks/delta/test_current.py"

BREAKAGES: Final = {
    "a-row-merged-as-bytes-is-shown-though-it-does-not-match": breakage(
        "a row that ceases to match goes",
        "tailrace_spark.sinks.sql.row_builder:Renderer.merged_values",
        drop("self._shown_rows is None or ..."),
        Red("unit/spark/sinks/sql/test_contract.py", "TestSql::test_a_row_comes_with_all_its_columns_and_goes[sqlite]"),
    ),
    "a-row-that-ceases-to-match-stays-in-a-current-table": breakage(
        "a row that ceases to match goes",
        "tailrace_spark.sinks.lake.fast_rows:VisibleRowColumns._shows",
        constant("shown_rows.shows_cells(row.cells)", True),
        Red(CURRENT, "TestDeltaCurrent::test_a_row_comes_with_all_its_columns_and_goes"),
        Red(CURRENT, "TestDeltaCurrentInTasks::test_a_row_comes_with_all_its_columns_and_goes"),
    ),
    "a-hidden-row-leaves-its-values-to-the-next-one": breakage(
        "a row that begins to match comes with its own columns",
        "tailrace_spark.sinks.lake.fast_rows:VisibleRowColumns.add",
        drop("self._clear(index)"),
        Red(CURRENT, "TestDeltaCurrent::test_a_row_has_nothing_of_a_row_that_does_not_match"),
    ),
    "what-is-not-known-is-null": breakage(
        "a deletion that a filter cannot be asked of goes to the sink",
        "tailrace_spark.shaping.change_filters:ChangePredicate.passes",
        drop("asks <= known_count"),
        Red(KNOWN, "test_what_cannot_be_judged_goes_through[change8-2-True]", "assert"),
    ),
    "null-goes-through": breakage(
        "a table that follows filtered changes has the rows that the filter is true of",
        "tailrace_spark.shaping.change_filters:ChangePredicate.passes",
        replace("test(values) is True", "test(values) is not False"),
        Red(KNOWN, "test_null_is_not_true_where_the_value_is_known", "assert"),
    ),
    "tasks-count-nothing-that-filters-leave-out": breakage(
        "large batches are written by tasks, small ones by the driver",
        "tailrace_spark.tasks.partition_writer:_PartitionRecords._decoded",
        drop("self.counts += RecordCounts(left_out=dict(filters.left_out))"),
        Red(
            FILTERED,
            "test_changes_are_filtered_and_masked_by_the_driver_and_by_tasks[executors]",
            "left_out",
        ),
        needs=Needs.KAFKA,
    ),
    "filters-are-checked-by-their-first-change": breakage(
        "filters and masks that a known table does not fit are refused at the start",
        "tailrace_spark.job.stream:Stream._claim_checkpoint",
        drop("self._check_shape()"),
        Red(FILTERED, "test_a_table_that_is_known_and_does_not_fit_is_refused_at_the_start", "DID NOT RAISE"),
        needs=Needs.KAFKA,
    ),
    "behind-only-when-a-batch-ends": breakage(
        "a stream's lag is reported while it waits",
        "tailrace_spark.job.progress:topic_lag",
        replace("now = ends(reached)", "ends(reached)\nnow = reached"),
        Red("unit/spark/job/test_metrics.py", "test_the_status_says_what_waits_and_what_to_do", "behind_records"),
    ),
    "an-error-that-is-only-logged": breakage(
        "what a stream waits for is reported while it waits",
        "tailrace_spark.job.retry:Retry.until_done",
        drop("self._metrics.failed(need, *problem_and_remedy(error))"),
        Red(
            "integration/test_stream.py",
            "test_it_waits_for_topics_and_the_first_generation",
            "no valid generation is published yet",
        ),
        needs=Needs.KAFKA,
    ),
    "a-letter-without-bytes-is-left": breakage(
        "a letter of a stream with masks is read from its topic again",
        "tailrace_spark.job.replay:_with_bytes",
        unwrap("replace(...)", "letter"),
        Red(
            "unit/spark/job/test_replay.py",
            "test_one_without_its_bytes_is_read_from_its_topic_as_long_as_that_has_it",
            "assert",
        ),
    ),
    "a-replayed-truncation-erases-what-is-newer": breakage(
        "a truncation that is replayed takes nothing that was written since",
        "tailrace_spark.job.replay:_late_truncation",
        replace("source.flags | TRUNCATED_LATE", "source.flags"),
        Red(
            "unit/spark/job/test_replay.py",
            "test_a_truncation_takes_nothing_that_was_written_since_it_was_set_aside",
            "assert",
        ),
    ),
}
