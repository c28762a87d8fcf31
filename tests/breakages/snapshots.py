"""Breakages of snapshots: what is read, where rows stand, what is published twice, what a truncation takes."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

COMPARE: Final = "integration/snapshot/test_compare.py"
PROGRESS: Final = "unit/spark/snapshot/test_progress.py"
ROWS: Final = "unit/spark/snapshot/test_task_records.py"
DOUBTS: Final = "unit/spark/snapshot/test_doubts.py"
CHANGES: Final = "unit/spark/snapshot/test_changes.py"
TRUNCATION: Final = "unit/spark/rowstate/test_truncation.py"
RUN: Final = "spark/tailrace_spark/job/snapshot_run.py"
STREAM: Final = "integration/snapshot/test_stream.py"
REDELIVERED: Final = "test_a_sink_that_appends_gets_each_row_once_though_a_crash_hides_that_it_has_it[driver]"

PUBLISHING: Final = "integration/snapshot/test_publishing.py"

BREAKAGES: Final = (
    Breakage(
        name="a-later-attempt-begins-a-range-again",
        promise="a snapshot publishes each row once",
        file="spark/tailrace_spark/snapshot/publishing.py",
        old="            self._progress.read()  # behind the fence",
        new="            # behind the fence",
        needs=Needs.NODE,
        reds=(Red(PUBLISHING, "test_a_later_attempt_at_a_range_ends_an_earlier_one", ASSERTED),),
    ),
    Breakage(
        name="rows-come-as-fast-as-they-can",
        promise="a read keeps to its limits",
        file="spark/tailrace_spark/snapshot/pace.py",
        old="now - 1.0) + rows / self._rate\n",
        new="now - 1.0) + rows / self._rate / 100\n",
        needs=Needs.NOTHING,
        reds=(Red("unit/spark/snapshot/test_reading.py", "test_rows_come_no_faster_than_asked_for[50.0]", ASSERTED),),
    ),
    Breakage(
        name="a-snapshot-forgets-what-it-read-before-its-last-round",
        promise="each token is read once",
        file="spark/tailrace_spark/snapshot/progress.py",
        old="done=union(self.done, self.round.tokens)",
        new="done=self.round.tokens",
        needs=Needs.NOTHING,
        reds=(
            Red(
                PROGRESS,
                "test_rounds_read_each_token_once_however_the_ring_changes_between_them",
                r"AssertionError|assert",
            ),
        ),
    ),
    Breakage(
        name="a-row-that-was-read-has-another-place-when-it-has-changed",
        promise="a row has one place, however often it is read",
        file="spark/tailrace_spark/snapshot/task_records.py",
        old='row_number(change.key or b"", ',
        new="row_number(change.digest, ",
        needs=Needs.NOTHING,
        reds=(Red(ROWS, "test_a_row_has_one_number_whatever_it_says_and_others_have_others", ASSERTED),),
    ),
    Breakage(
        name="an-element-that-is-appended-while-its-row-is-read-comes-twice",
        promise="a copy is equal to SELECT, while the table is written",
        file="spark/tailrace_spark/snapshot/changes.py",
        old="        return max(newest, default=self._requested_at - 1)\n",
        new="        del newest\n        return self._requested_at - 1\n",
        needs=Needs.NOTHING,
        reds=(Red(CHANGES, "test_an_element_that_is_appended_while_its_row_is_read_is_there_once", ASSERTED),),
    ),
    Breakage(
        name="rows-read-before-a-truncation-survive-it",
        promise="no row that was read before a truncation survives it",
        file="spark/tailrace_spark/rowstate/truncation.py",
        old="            return 0 < source.seen * _MILLIS <= self.statements[-1] + int(ring_delay * _MICROS)\n",
        new="            return False\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                TRUNCATION,
                "test_a_row_that_was_read_before_a_truncation_is_gone_and_one_that_was_read_later_stays",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="rows-of-a-dropped-table-are-written-as-the-next-ones",
        promise="a dropped table leaves no row in the next of its name",
        file=RUN,
        old="                if self._context.find(snapshot.table) != table:\n",
        new="                if self._context.find(snapshot.table) is None:\n",
        needs=Needs.NODE,
        reds=(
            Red(
                STREAM,
                "test_a_table_that_is_dropped_and_made_again_ends_its_snapshot_and_leaves_no_row_of_it",
                r"assert",
            ),
        ),
    ),
    Breakage(
        name="a-round-is-read-before-it-is-noted",
        promise="a round is noted before it is read",
        file=RUN,
        old="            self._keep(self.value.put(snapshot))\n        self._read_and_write(",
        new="            self._value = self.value.put(snapshot)\n        self._read_and_write(",
        needs=Needs.NODE,
        reds=(
            Red(
                STREAM,
                "test_a_round_is_read_again_as_it_was_planned_though_a_node_has_joined_since",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-row-is-lost-with-its-last-cell",
        promise="a row that a snapshot has read exists as in Cassandra",
        file="spark/tailrace_spark/snapshot/doubts.py",
        old="        marker = Marker(requested_at - GRACE_MICROS)\n",
        new="        pass\n",
        needs=Needs.NOTHING,
        reds=(
            Red(DOUBTS, "test_a_row_that_select_returns_without_a_cell_gets_a_marker_and_others_get_nothing", ASSERTED),
        ),
    ),
    Breakage(
        name="a-total-is-added-to-the-shards",
        promise="a table with counters that a snapshot has read shows the totals of Cassandra",
        file="spark/tailrace_spark/rowstate/counters.py",
        old="    if _TOTAL in newest:\n",
        new='    if b"" in newest:\n',
        needs=Needs.NOTHING,
        reds=(Red(DOUBTS, "test_a_total_stands_for_all_shards_until_a_later_one_is_read", ASSERTED),),
    ),
    Breakage(
        name="a-dead-node-has-its-ranges-read-beyond-the-limit",
        promise="a node has no more requests than its limit, whoever is down",
        file="spark/tailrace_spark/snapshot/rounds.py",
        old="        if per_node is None or all(tasks_of_node[node] < per_node for node in nodes):\n",
        new="        if per_node is None or all(tasks_of_node[node] <= per_node for node in nodes):\n",
        needs=Needs.NOTHING,
        reds=(
            Red(PROGRESS, "test_a_round_noted_before_a_node_died_is_read_within_the_limit_at_its_replicas", ASSERTED),
        ),
    ),
    Breakage(
        name="null-and-a-value-compare-as-equal",
        promise="compare lists each row that differs",
        file="spark/tailrace_spark/comparison/rows.py",
        old='b"\\x00" if column is None else b"\\x01" + column for column in columns',
        new='b"" if column is None else b"" for column in columns',
        needs=Needs.NODE,
        reds=(
            Red(COMPARE, "test_each_kind_of_difference_is_told_with_key_and_columns_and_repaired[sqlite]", ASSERTED),
        ),
    ),
    Breakage(
        name="a-difference-is-looked-at-once",
        promise="what comes within the grace is no difference",
        file="spark/tailrace_spark/comparison/run.py",
        old="        return self._second(rows, buckets, first)\n",
        new="        return Compared(self.table, rows, buckets, first, 0)\n",
        needs=Needs.NODE,
        reds=(Red(COMPARE, "test_what_comes_within_the_grace_is_no_difference[sqlite]", ASSERTED),),
    ),
    Breakage(
        name="what-only-the-sink-has-stays",
        promise="repaired rows read as SELECT returns them",
        file="spark/tailrace_spark/comparison/rows.py",
        old="            if cell.value is not None and path not in paths and",
        new="            if cell.value is None and path not in paths and",
        needs=Needs.NODE,
        reds=(
            Red(COMPARE, "test_each_kind_of_difference_is_told_with_key_and_columns_and_repaired[sqlite]", ASSERTED),
        ),
    ),
)
