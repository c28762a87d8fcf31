"""Breakages of what a stream gives its sink, of the check of its settings, of what it tells, of dead letters."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

ASKED: Final = "spark/tailrace_spark/shaping/filter_columns.py"
CONDITION: Final = "spark/tailrace_spark/shaping/spark_condition.py"
FILTERS: Final = "spark/tailrace_spark/shaping/change_filters.py"
KNOWN: Final = "unit/spark/shaping/test_filter_columns.py"
FILTERED: Final = "integration/test_filters.py"

RENDER: Final = "spark/tailrace_spark/sinks/sql/render.py"
ROWS: Final = "unit/spark/sinks/sql/test_row_filters.py"
LAKE_ROWS: Final = "unit/spark/sinks/lake/test_row_filters.py"

BREAKAGES: Final = (
    Breakage(
        name="a-row-merged-as-bytes-is-shown-though-it-does-not-match",
        promise="a row that ceases to match goes",
        file=RENDER,
        old="return values if live and (self._shown_rows is None or self._shown_rows.shows_cells(row)) else None",
        new="return values if live else None",
        needs=Needs.NOTHING,
        reds=(Red(ROWS, "test_a_row_comes_with_all_its_columns_and_goes[sqlite]", ASSERTED),),
    ),
    Breakage(
        name="a-row-that-ceases-to-match-stays-in-a-current-table",
        promise="a row that ceases to match goes",
        file="spark/tailrace_spark/sinks/lake/fast_rows.py",
        old="            return shown_rows.shows_cells(row.cells)\n",
        new="            return True\n",
        needs=Needs.NOTHING,
        reds=tuple(
            Red(LAKE_ROWS, f"test_a_row_comes_with_all_its_columns_and_goes[{lake}]", ASSERTED)
            for lake in ("delta", "delta, tasks", "iceberg", "iceberg, tasks")
        ),
    ),
    Breakage(
        name="a-hidden-row-leaves-its-values-to-the-next-one",
        promise="a row that begins to match comes with its own columns",
        file="spark/tailrace_spark/sinks/lake/fast_rows.py",
        old="            self._clear(index)  # the next row takes this place\n",
        new="",
        needs=Needs.NOTHING,
        reds=(Red(LAKE_ROWS, "test_a_row_has_nothing_of_a_row_that_does_not_match[delta]", ASSERTED),),
    ),
    Breakage(
        name="unknown-is-taken-for-true",
        promise="a row matches if the condition is true, not if it is null",
        file="spark/tailrace_spark/merge/row_filter.py",
        old="return self._test(values) is True",
        new="return self._test(values) is not False",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/shaping/test_row_conditions.py",
                "test_a_row_matches_where_its_values_make_it_true[NOT row.total > 5-values2-False]",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-range-is-known-by-its-start",
        promise="a deletion that a filter cannot be asked of goes to the sink",
        file=ASKED,
        old="            if start != end:\n                break\n",
        new="",
        needs=Needs.NOTHING,
        reds=(
            Red(
                KNOWN,
                "test_known_is_what_all_rows_of_a_change_have_in_common[delete_range-2_0]",
                "assert known_key_columns",
            ),
        ),
    ),
    Breakage(
        name="what-is-not-known-is-null",
        promise="a deletion that a filter cannot be asked of goes to the sink",
        file=CONDITION,
        old=" for index, conjunct in enumerate(self._conjuncts) if conjunct.columns <= known_columns)",
        new=" for index, conjunct in enumerate(self._conjuncts))",
        needs=Needs.KAFKA,
        reds=tuple(
            Red(FILTERED, f"test_what_cannot_be_judged_goes_through[{execution}-change8-True]", "assert taken")
            for execution in ("driver", "executors")
        ),
    ),
    Breakage(
        name="a-name-in-other-letters-is-not-known",
        promise="a table that follows filtered changes has the rows that the filter is true of",
        file=CONDITION,
        old="names[attribute.exprId().id()] for attribute in",
        new="attribute.name() for attribute in",
        needs=Needs.KAFKA,
        reds=(
            Red(
                FILTERED,
                "test_a_name_in_other_letters_is_the_column_that_spark_takes_it_for[driver]",
                "assert taken",
            ),
        ),
    ),
    Breakage(
        name="null-goes-through",
        promise="a table that follows filtered changes has the rows that the filter is true of",
        file=FILTERS,
        old="        return [result is True for result in results]\n",
        new="        return [result is not False for result in results]\n",
        needs=Needs.KAFKA,
        reds=(Red(FILTERED, "test_null_is_not_true_where_the_value_is_known[driver]", "assert taken"),),
    ),
    Breakage(
        name="null-goes-through-tasks",
        promise="a table that follows filtered changes has the rows that the filter is true of",
        file=CONDITION,
        old="F.coalesce(together, F.lit(False))",
        new="F.coalesce(together, F.lit(True))",
        needs=Needs.KAFKA,
        reds=(Red(FILTERED, "test_null_is_not_true_where_the_value_is_known[executors]", "assert taken"),),
    ),
    Breakage(
        name="tasks-count-nothing-that-filters-leave-out",
        promise="large batches are written by tasks, small ones by the driver",
        file="spark/tailrace_spark/tasks/partition_writer.py",
        old="                self.counts += RecordCounts(left_out=left_out)\n",
        new="",
        needs=Needs.KAFKA,
        reds=(Red("integration/test_stream_tasks.py", "test_changes_are_filtered_and_masked_in_tasks", "left_out"),),
    ),
    Breakage(
        name="filters-are-checked-by-their-first-change",
        promise="filters and masks that a known table does not fit are refused at the start",
        file="spark/tailrace_spark/job/stream.py",
        old="        self._check_shape()\n",
        new="",
        needs=Needs.KAFKA,
        reds=(Red(FILTERED, "test_a_table_that_is_known_and_does_not_fit_is_refused_at_the_start", "DID NOT RAISE"),),
    ),
    Breakage(
        name="behind-only-when-a-batch-ends",
        promise="a stream's lag is reported while it waits",
        file="spark/tailrace_spark/job/lag.py",
        old="        now = ends(reached)\n",
        new="        ends(reached)\n        now = reached\n",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/spark/job/test_metrics.py", "test_the_status_says_what_waits_and_what_to_do", "behind_records"),
        ),
    ),
    Breakage(
        name="an-error-that-is-only-logged",
        promise="what a stream waits for is reported while it waits",
        file="spark/tailrace_spark/job/retry.py",
        old="                self._metrics.failed(need, str(error))\n",
        new="",
        needs=Needs.KAFKA,
        reds=(
            Red(
                "integration/test_stream.py",
                "test_it_waits_for_topics_and_the_first_generation",
                "no valid generation is published yet",
            ),
        ),
    ),
    Breakage(
        name="letters-go-before-they-are-taken",
        promise="a dead letter of an HTTP or RabbitMQ sink stays until it is written again",
        file="spark/tailrace_spark/sinks/changelog/file_dead_letters.py",
        old="                sent = self.emit([Piece((delivered,))])\n                if not sent.dead_letters:\n",
        new="                sent = self.emit([Piece((delivered,))])\n                if sent:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/changelog/test_file_dead_letters.py",
                "test_what_is_not_understood_or_refused_again_stays",
                "assert",
            ),
        ),
    ),
    Breakage(
        name="a-letter-file-that-anyone-cuts",
        promise="dead letters are replayed while the stream writes others",
        file="spark/tailrace_spark/sinks/changelog/dead_letter_file.py",
        old="                fcntl.flock(file, fcntl.LOCK_EX)  # closing the file lets go of it\n",
        new="",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/changelog/test_file_dead_letters.py",
                "test_one_at_a_time_has_the_file",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="a-letter-without-bytes-is-left",
        promise="a letter of a stream with masks is read from its topic again",
        file="spark/tailrace_spark/job/replay.py",
        old='replace(letter, message=fetch(letter.record_id) or b"")',
        new="letter",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/sql/test_dead_letters.py",
                "test_one_without_its_bytes_is_read_from_its_topic[sqlite]",
                "assert",
            ),
        ),
    ),
)
