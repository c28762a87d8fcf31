"""Breakages of what makes a Delta sink fast: states merged in columns, rows appended where none is there."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

PLAIN: Final = "unit/spark/rowstate/test_plain.py"
ROWS: Final = "unit/spark/sinks/lake/test_fast_rows.py"
READING: Final = "unit/spark/sinks/lake/test_state_reader.py"
CURRENT_TASKS: Final = "unit/spark/sinks/lake/test_current_tasks.py"
COLUMNS: Final = "unit/spark/sinks/arrow/test_change_columns.py"

BREAKAGES: Final = (
    Breakage(
        name="an-error-of-one-table-ends-the-batch",
        promise="an exception of any type is its table's: all other tables go on",
        file="spark/tailrace_spark/sinks/table_faults.py",
        old="return isinstance(error, Exception) or",
        new="return isinstance(error, ValueError) or",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/test_table_faults.py",
                "test_an_exception_of_any_type_is_its_table_s[KeyError]",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="names-go-by-the-definition-s-order",
        promise="names that differ by case stay what they are, whatever columns come later",
        file="spark/tailrace_spark/sinks/lake/names.py",
        old="        elif name in existing and name not in own_names:\n",
        new="        elif name in existing and not index:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/lake/test_names.py",
                "test_a_name_stays_when_one_comes_that_differs_by_case",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="the-smaller-of-two-values-holds",
        promise="a table reads as SELECT, whatever comes in what order how often",
        file="spark/tailrace_spark/rowstate/plain.py",
        old="(value_written == written and value > incoming_value)",
        new="(value_written == written and value < incoming_value)",
        needs=Needs.NOTHING,
        reds=(Red(PLAIN, "test_plain_changes_merge_as_states_do", ASSERTED),),
    ),
    Breakage(
        name="what-a-partition-deletion-covers-is-merged-as-plain",
        promise="a table reads as SELECT, whatever comes in what order how often",
        file="spark/tailrace_spark/sinks/lake/fast_rows.py",
        old="            if clustering < ROW or ",
        new="            if ",
        needs=Needs.NOTHING,
        reds=(Red(ROWS, "test_states_and_rows_are_those_of_objects", ASSERTED),),
    ),
    Breakage(
        name="rows-that-are-there-are-appended",
        promise="a table reads as SELECT, whatever comes in what order how often",
        file="spark/tailrace_spark/sinks/lake/row_changes.py",
        old="        new = new and stored_rows.at.keys().isdisjoint(put)\n",
        new="",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/spark/sinks/delta/test_current.py", "test_rows_that_are_there_are_put_in_their_place", ASSERTED),
        ),
    ),
    Breakage(
        name="what-columns-cannot-say-is-left-out",
        promise="every value comes back bit for bit",
        file="spark/tailrace_spark/sinks/lake/history.py",
        old="[columns.taken[row] for row in odd]",
        new="[columns.taken[row] for row in odd if not batch]",
        needs=Needs.NOTHING,
        reds=(Red(COLUMNS, "test_more_than_columns_take_at_once_are_all_there[changes]", ASSERTED),),
    ),
    Breakage(
        name="large-values-fill-a-group-without-end",
        promise="every value comes back bit for bit",
        file="spark/tailrace_spark/sinks/arrow/change_columns.py",
        old=" or self._held >= self.octets\n",
        new="\n",
        needs=Needs.NOTHING,
        reds=(Red(COLUMNS, "test_large_values_end_a_group_sooner", ASSERTED),),
    ),
    Breakage(
        name="only-the-first-part-of-a-batch-is-looked-for",
        promise="a table reads as SELECT, whatever comes in what order how often",
        file="spark/tailrace_spark/sinks/lake/row_changes.py",
        old="        new = new and stored_rows.at",
        new="        new = stored_rows.at",
        needs=Needs.NOTHING,
        reds=(Red(READING, "test_rows_that_are_there_are_put_in_place_also_where_another_part_has_none", ASSERTED),),
    ),
    Breakage(
        name="what-another-writer-has-shown-is-appended-again",
        promise="a table reads as SELECT, whatever comes in what order how often",
        file="spark/tailrace_spark/sinks/lake/current_table.py",
        old="        if batch > former:\n",
        new="        if batch > former and not changed:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/delta/test_current.py",
                "test_what_another_writer_has_shown_is_not_shown_twice[the same columns]",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="definitions-are-placed-by-what-was-there-before",
        promise="every value comes back bit for bit, and columns come and go",
        file="spark/tailrace_spark/sinks/lake/history.py",
        old="        self._widen(filling.writing, route)  # at once: the next definition is placed by that\n",
        new="",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/delta/test_history.py",
                "test_a_column_that_two_definitions_of_a_batch_add_with_other_types",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="buckets-of-before-go-by-token",
        promise="what an earlier version noted of a table goes on",
        file="spark/tailrace_spark/sinks/lake/state.py",
        old="by_token=by == _BY_TOKEN)",
        new="by_token=True)",
        needs=Needs.NOTHING,
        reds=(Red("unit/spark/sinks/lake/test_buckets.py", "test_an_entry_notes_its_buckets[False]", ASSERTED),),
    ),
    Breakage(
        name="tasks-files-are-committed-on-another-state",
        promise="two attempts of Spark at a task leave the rows of one",
        file="spark/tailrace_spark/sinks/lake/current_plans.py",
        old=" or table.version_of(BATCH) != batch:\n",
        new=":\n",
        needs=Needs.NOTHING,
        reds=(Red(CURRENT_TASKS, "test_two_attempts_at_a_partition_come_out_as_one[delta]", "not its any more"),),
    ),
    Breakage(
        name="files-that-were-compacted-are-replaced",
        promise="two attempts of Spark at a task leave the rows of one",
        file="spark/tailrace_spark/sinks/delta/store.py",
        old="        if missing := [path for path in paths if path not in existing]:\n",
        new="        paths = [path for path in paths if path in existing]\n        if missing := list[str]():\n",
        needs=Needs.NOTHING,
        reds=(Red(CURRENT_TASKS, "test_files_that_were_compacted_meanwhile_are_not_replaced[delta]", "DID NOT RAISE"),),
    ),
    Breakage(
        name="new-tables-have-the-buckets-of-the-setting",
        promise="a task replaces files of its own Kafka partition's keys alone",
        file="spark/tailrace_spark/sinks/lake/current_plans.py",
        old="_multiple(self._buckets, topic_partitions))",
        new="self._buckets)",
        needs=Needs.NOTHING,
        reds=(Red(CURRENT_TASKS, "test_a_task_replaces_files_of_its_own_buckets_alone[delta]", "DriverOnlyError"),),
    ),
    Breakage(
        name="tasks-go-on-where-the-state-is-ahead",
        promise="a table is healed after a crash between any two commits",
        file="spark/tailrace_spark/sinks/lake/current_task.py",
        old=" and noted == followed.state.batch:\n",
        new=":\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                CURRENT_TASKS,
                "test_a_driver_that_dies_around_its_commits_leaves_what_the_batch_makes_good[delta-2]",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="a-later-versions-record-is-read",
        promise="a table of a later version ends the stream",
        file="spark/tailrace_spark/merge/table_record.py",
        old="        if version != VERSION:\n",
        new="        if version < VERSION:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/merge/test_table_record.py",
                "test_a_later_versions_record_is_refused",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="truncations-of-before-are-not-read",
        promise="what an earlier version noted of a table goes on",
        file="spark/tailrace_spark/sinks/lake/state.py",
        old="        if former is None or entry.truncations != TruncationState():\n",
        new="        if former is None or entry.truncations == TruncationState():\n",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/spark/sinks/lake/test_entries.py", "test_a_table_of_an_earlier_version_goes_on[delta]", ASSERTED),
        ),
    ),
)
