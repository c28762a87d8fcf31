"""Breakages of snapshots: what is read, where rows stand, what is published twice, what a truncation takes."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import argument, constant, drop, negate, replace, together, unwrap

COMPARE: Final = "integration/snapshot/test_compare.py"
PROGRESS: Final = "unit/spark/snapshot/test_progress.py"
ROWS: Final = "unit/spark/snapshot/test_task_records.py"
CHANGES: Final = "unit/spark/snapshot/test_changes.py"
TRUNCATION: Final = "unit/spark/rowstate/test_truncation.py"
STREAM: Final = "integration/snapshot/test_stream.py"

PUBLISHING: Final = "integration/snapshot/test_publishing.py"

BREAKAGES: Final = {
    "a-stream-that-began-without-existing-rows-copies-them": breakage(
        "a stream that began without existing rows copies none until its settings say so",
        "tailrace_spark.job.fitness:existing_rows",
        replace("started and not noted.copies and not stream.chooses_snapshot", "False"),
        Red(
            "unit/spark/job/test_fitness.py",
            "test_a_stream_that_began_without_copies_nothing_until_its_settings_say_so",
            "assert",
        ),
    ),
    "a-later-attempt-begins-a-range-again": breakage(
        "a snapshot publishes each row once",
        "tailrace_spark.snapshot.publishing:RangePublisher.publish",
        drop("self._progress.read()"),
        Red(PUBLISHING, "test_a_later_attempt_at_a_range_ends_an_earlier_one"),
        needs=Needs.NODE,
    ),
    "rows-come-as-fast-as-they-can": breakage(
        "a read keeps to its limits",
        "tailrace_spark.snapshot.pace:RowRate.wait",
        replace("rows / self._rate", "rows / self._rate / 100"),
        Red("unit/spark/snapshot/test_reading.py", "test_rows_come_no_faster_than_asked_for[50.0]"),
    ),
    "a-snapshot-forgets-what-it-read-before-its-last-round": breakage(
        "each token is read once",
        "tailrace_spark.snapshot.progress:TableSnapshot.written",
        unwrap("union(self.done, self.round.tokens)", "self.round.tokens"),
        Red(
            PROGRESS, "test_rounds_read_each_token_once_however_the_ring_changes_between_them", r"AssertionError|assert"
        ),
    ),
    "a-row-that-was-read-has-another-place-when-it-has-changed": breakage(
        "a row has one place, however often it is read",
        "tailrace_spark.snapshot.changes:records_of",
        argument("row_number(...)", 0, "change.digest"),
        Red(ROWS, "test_a_row_has_one_number_whatever_it_says_and_others_have_others"),
    ),
    "an-element-that-is-appended-while-its-row-is-read-comes-twice": breakage(
        "a copy is equal to SELECT, while the table is written",
        "tailrace_spark.snapshot.changes:_Cells._replaced",
        unwrap("max(newest, ...)", "self._requested_at - 1"),
        Red(CHANGES, "test_an_element_that_is_appended_while_its_row_is_read_is_there_once"),
    ),
    "rows-read-before-a-truncation-survive-it": breakage(
        "no row that was read before a truncation survives it",
        "tailrace_spark.rowstate.truncation:TruncationState.covers",
        constant("0 < source.seen * _MILLIS <= self.statements[-1] + int(ring_delay * _MICROS)", False),
        Red(TRUNCATION, "test_a_row_that_was_read_before_a_truncation_is_gone_and_one_that_was_read_later_stays"),
    ),
    "rows-of-a-dropped-table-are-written-as-the-next-ones": breakage(
        "a dropped table leaves no row in the next of its name",
        "tailrace_spark.job.snapshot_run:SnapshotRun._read_and_write",
        replace(
            "self._context.find(snapshot.table) != table",
            "self._context.find(snapshot.table) is None",
        ),
        Red(STREAM, "test_a_table_that_is_dropped_and_made_again_ends_its_snapshot_and_leaves_no_row_of_it", r"assert"),
        needs=Needs.NODE,
    ),
    "a-round-is-read-before-it-is-noted": breakage(
        "a round is noted before it is read",
        "tailrace_spark.job.snapshot_run:SnapshotRun._round",
        replace("self._keep(self.value.put(snapshot))", "self._value = self.value.put(snapshot)"),
        Red(STREAM, "test_a_round_is_read_again_as_it_was_planned_though_a_node_has_joined_since"),
        needs=Needs.NODE,
    ),
    "a-row-that-was-read-back-is-kept-in-place-of-its-change": breakage(
        "of a table that waits the rows that were read back are kept, and their changes too",
        "tailrace_spark.sinks.sql.deferred:DeferredChange.digest",
        replace("(self.key, self.at, self.state)", "()"),
        Red("unit/spark/sinks/sql/test_deferred.py", "test_what_else_has_the_place_of_a_change_is_kept_beside_it"),
    ),
    "null-and-a-value-compare-as-equal": breakage(
        "compare lists each row that differs",
        "tailrace_spark.comparison.rows:row_digest",
        together(constant(r"b'\x00'", b""), constant(r"b'\x01' + column", b"")),
        Red(COMPARE, "test_each_kind_of_difference_is_told_with_key_and_columns_and_repaired"),
        needs=Needs.NODE,
    ),
    "a-difference-is-looked-at-once": breakage(
        "what comes within the grace is no difference",
        "tailrace_spark.comparison.run:Comparison.compare",
        replace("self._second(rows, buckets, first)", "Compared(self.table, rows, buckets, first, 0)"),
        Red(COMPARE, "test_what_comes_within_the_grace_is_no_difference"),
        needs=Needs.NODE,
    ),
    "what-only-the-sink-has-stays": breakage(
        "repaired rows read as SELECT returns them",
        "tailrace_spark.comparison.rows:removal",
        negate("cell.value is not None"),
        Red(COMPARE, "test_each_kind_of_difference_is_told_with_key_and_columns_and_repaired"),
        needs=Needs.NODE,
    ),
}
