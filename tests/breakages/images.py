"""Breakages of row images and of Debezium's events made from them."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Red, breakage
from tests.breakages.mutations import drop, replace, unwrap

STORED: Final = "unit/spark/sinks/images/test_store.py"
FILTERED: Final = "unit/spark/sinks/images/test_filters.py"

BREAKAGES: Final = {
    "images-are-made-again": breakage(
        "what is delivered again has the images that it had",
        "tailrace_spark.sinks.images.state:given_before",
        drop("c.offset < offsets[0]"),
        Red(STORED, "test_a_batch_that_comes_again_has_the_images_that_it_had[sqlite]"),
        Red("unit/spark/source/test_images.py", "test_a_batch_whose_sink_failed_carries_the_images_that_it_had"),
    ),
    "a-row-that-ceases-to-match-has-an-image": breakage(
        "filtered images are those of a table that has no other rows",
        "tailrace_spark.batch.row_image:_matching",
        unwrap("None if ... else ...", "values"),
        Red(FILTERED, "test_a_row_comes_when_it_matches_and_goes_when_not"),
    ),
    "images-without-deletions": breakage(
        "the last image of each key is what SELECT shows",
        "tailrace_spark.sinks.images.state:ScopeState.load",
        drop("partition.deletions = head.deletions"),
        Red(STORED, "test_what_is_covered_by_what_is_there_changes_nothing"),
    ),
    "a-task-tells-what-expired-elsewhere": breakage(
        "what expired is told once, by the task of its key",
        "tailrace_spark.sinks.images.state:ScopeState.due",
        drop("owns is None or ..."),
        Red("unit/spark/sinks/images/test_tasks.py", "test_the_task_of_its_key_tells_what_expired"),
    ),
    "a-task-makes-images-after-a-newer-plan": breakage(
        "tasks of an earlier plan make no more images",
        "tailrace_spark.sinks.images.planning:ShareImages.imaged",
        replace("self.fence.require", "print"),
        Red(
            "unit/spark/sinks/images/test_tasks.py",
            "test_tasks_of_an_earlier_plan_make_no_more_images",
            "DID NOT RAISE",
        ),
    ),
    "deletions-without-tombstones": breakage(
        "a record without a value stands behind each deletion",
        "tailrace_spark.sinks.kafka.debezium:DebeziumForm._event",
        replace("image.op is ImageOp.DELETE", "image.after is not None"),
        Red(
            "unit/spark/sinks/kafka/test_debezium.py",
            "test_a_deletion_of_many_rows_has_an_event_and_a_tombstone_for_each",
        ),
    ),
}
