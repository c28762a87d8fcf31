"""Breakages of row images and of Debezium's events made from them."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

STORE: Final = "spark/tailrace_spark/sinks/images/store.py"
STATE: Final = "spark/tailrace_spark/sinks/images/state.py"
EVENTS: Final = "spark/tailrace_spark/sinks/kafka/debezium.py"
STORED: Final = "unit/spark/sinks/images/test_store.py"
FILTERED: Final = "unit/spark/sinks/images/test_filters.py"

BREAKAGES: Final = (
    Breakage(
        name="images-are-made-again",
        promise="what is delivered again has the images that it had",
        file="spark/tailrace_spark/sinks/images/given.py",
        old="            connection.execute(GIVEN.delete().where(of_partition, c.offset < offsets[0]))\n",
        new="            connection.execute(GIVEN.delete().where(of_partition))\n",
        needs=Needs.NOTHING,
        reds=(
            Red(STORED, "test_a_batch_that_comes_again_has_the_images_that_it_had[sqlite]", ASSERTED),
            Red(
                "unit/spark/source/test_images.py",
                "test_a_batch_whose_sink_failed_carries_the_images_that_it_had",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-row-that-ceases-to-match-has-an-image",
        promise="filtered images are those of a table that has no other rows",
        file="spark/tailrace_spark/batch/row_image.py",
        old="            None if values is None or not matches(values) else values for values",
        new="            values for values",
        needs=Needs.NOTHING,
        reds=(Red(FILTERED, "test_a_row_comes_when_it_matches_and_goes_when_not", ASSERTED),),
    ),
    Breakage(
        name="images-without-deletions",
        promise="the last image of each key is what SELECT shows",
        file=STATE,
        old="                partition.deletions = head.deletions\n",
        new="",
        needs=Needs.NOTHING,
        reds=(Red(STORED, "test_what_is_covered_by_what_is_there_changes_nothing", ASSERTED),),
    ),
    Breakage(
        name="images-of-now",
        promise="rows are looked at as they were when their change was merged",
        file=STORE,
        old="images[record_position(delivered)] = table.maker.of(partition, delivered.change, now)",
        new="images[record_position(delivered)] = table.maker.of(partition, delivered.change, 0)",
        needs=Needs.NOTHING,
        reds=(Red(STORED, "test_rows_are_looked_at_as_they_are_then", ASSERTED),),
    ),
    Breakage(
        name="a-task-tells-what-expired-elsewhere",
        promise="what expired is told once, by the task of its key",
        file="spark/tailrace_spark/sinks/images/state.py",
        old="                if owns is None or owns(bytes(row.key)[len(self._scope) :])\n",
        new="",
        needs=Needs.NOTHING,
        reds=(Red("unit/spark/sinks/images/test_tasks.py", "test_the_task_of_its_key_tells_what_expired", ASSERTED),),
    ),
    Breakage(
        name="two-attempts-make-images-at-once",
        promise="tasks of an earlier plan make no more images",
        file="spark/tailrace_spark/sinks/images/planning.py",
        old="            lambda connection: begin_partition(connection, self.batch, self.token, partition),\n",
        new="            lambda connection: None,\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/images/test_tasks.py",
                "test_tasks_of_an_earlier_plan_make_no_more_images",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="events-of-nothing",
        promise="a row that a change left as it was has no event",
        file=EVENTS,
        old="            if image.op is not ImageOp.UPDATE or image.changed:\n",
        new="            if image is not None:\n",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/spark/sinks/kafka/test_debezium.py", "test_a_row_that_stays_as_it_was_has_no_event", ASSERTED),
        ),
    ),
    Breakage(
        name="deletions-without-tombstones",
        promise="a record without a value stands behind each deletion",
        file=EVENTS,
        old="        if self._tombstones and image.op is ImageOp.DELETE:\n",
        new="        if self._tombstones and image.after is not None:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/kafka/test_debezium.py",
                "test_a_deletion_of_many_rows_has_an_event_and_a_tombstone_for_each",
                ASSERTED,
            ),
        ),
    ),
)
