"""Breakages of Iceberg's commits through Spark: what is noted, and over which version one is published.

Their tests run on the run's Spark.
"""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Breakage, Needs, Red

ICEBERG: Final = "spark/tailrace_spark/sinks/iceberg/catalog.py"

BREAKAGES: Final = (
    Breakage(
        name="iceberg-notes-over-what-another-noted",
        promise="of two writers at a time one fails, and finds its batch done",
        file=ICEBERG,
        old="        if any(properties.get(name) != value for name, value in noted.items()):\n",
        new="        if any(properties.get(name) is None and value is not None for name, value in noted.items()):\n",
        needs=Needs.KAFKA,
        reds=(
            Red(
                "integration/lake/test_iceberg_history.py",
                "test_of_two_that_write_at_a_time_one_fails_and_finds_its_batch_done",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="iceberg-publishes-over-another-snapshot",
        promise="a compaction in between is not undone",
        file=ICEBERG,
        old="            if snapshot is None or snapshot.parentId() != before:\n",
        new="            if snapshot is None or (snapshot.parentId() is None and before is not None):\n",
        needs=Needs.KAFKA,
        reds=(
            Red(
                "integration/lake/test_iceberg_history.py",
                "test_between_staging_and_publishing_another_writer_is_noticed",
                "DID NOT RAISE",
            ),
        ),
    ),
)
