"""Breakages of Iceberg's commits and upkeep: whose commit is refused, what is noted, what may be removed."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Red, breakage
from tests.breakages.mutations import constant, replace, unwrap

HISTORY: Final = "unit/spark/sinks/iceberg/test_history.py"
CURRENT: Final = "unit/spark/sinks/iceberg/test_current.py"

BREAKAGES: Final = {
    "iceberg-makes-a-refused-commit-again": breakage(
        "of two writers at a time one fails, and finds its batch done",
        "tailrace_spark.sinks.iceberg.store:REQUIRED",
        constant("'0'", "4"),
        Red(HISTORY, "test_of_two_that_write_at_a_time_one_fails_and_finds_its_batch_done", "DID NOT RAISE"),
    ),
    "iceberg-forgets-to-merge-manifests": breakage(
        "a table of updates alone stays as quick to read",
        "tailrace_spark.sinks.iceberg.store:IcebergStore._commit_data_files",
        constant("len(newest.manifests(table.iceberg.io)) >= self._manifests", False),
        Red(CURRENT, "test_manifests_of_merges_do_not_pile_up"),
    ),
    "iceberg-removes-files-that-may-be-being-written": breakage(
        "expiry removes what a crash left, and nothing that is being written",
        "tailrace_spark.sinks.iceberg.maintenance:Maintenance.expire",
        unwrap("max(hours, _UNREFERENCED_HOURS)", "hours"),
        Red(HISTORY, "test_what_a_crash_left_is_removed_when_it_is_a_day_old"),
    ),
    "iceberg-makes-empty-lists-of-null-ones": breakage(
        "every value comes back bit for bit",
        "tailrace_spark.sinks.iceberg.files:_read_file",
        replace(
            "batches = ...",
            """
            scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table([task])
            batches = scan.select(target.names).cast(target).combine_chunks().to_batches()
            """,
        ),
        Red(HISTORY, "test_null_lists_of_structs_stay_null"),
    ),
}
