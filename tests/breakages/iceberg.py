"""Breakages of Iceberg's commits and upkeep: whose commit is refused, what is noted, what may be removed."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

STORE: Final = "spark/tailrace_spark/sinks/iceberg/store.py"
HISTORY: Final = "unit/spark/sinks/iceberg/test_history.py"
CURRENT: Final = "unit/spark/sinks/iceberg/test_current.py"

BREAKAGES: Final = (
    Breakage(
        name="iceberg-makes-a-refused-commit-again",
        promise="of two writers at a time one fails, and finds its batch done",
        file=STORE,
        old='    TableProperties.COMMIT_NUM_RETRIES: "0",\n',
        new='    TableProperties.COMMIT_NUM_RETRIES: "4",\n',
        needs=Needs.NOTHING,
        reds=(
            Red(
                HISTORY,
                "test_of_two_that_write_at_a_time_one_fails_and_finds_its_batch_done",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="iceberg-trusts-a-table-to-have-its-properties",
        promise="of two writers at a time one fails, and finds its batch done",
        file=STORE,
        old="        if any(iceberg.properties.get(key) != value for key, value in REQUIRED.items()):\n",
        new="        if any(iceberg.properties.get(key, value) != value for key, value in REQUIRED.items()):\n",
        needs=Needs.NOTHING,
        reds=(Red(HISTORY, "test_a_refused_commit_is_not_made_again_over_another_writer_s", "DID NOT RAISE"),),
    ),
    Breakage(
        name="iceberg-forgets-to-merge-manifests",
        promise="a table of updates alone stays as quick to read",
        file=STORE,
        old="len(newest.manifests(table.iceberg.io)) >= self._manifests:\n",
        new="len(newest.manifests(table.iceberg.io)) < 0:\n",
        needs=Needs.NOTHING,
        reds=(Red(CURRENT, "test_manifests_of_merges_do_not_pile_up", ASSERTED),),
    ),
    Breakage(
        name="iceberg-writes-a-table-beside-one-without-a-catalog",
        promise="a directory without a catalog is refused until its tables are registered",
        file=STORE,
        old="        if registered and self._directory_alone and os.path.exists(",
        new="        if registered and self._remote and os.path.exists(",
        needs=Needs.NOTHING,
        reds=(
            Red(
                HISTORY,
                "test_a_directory_without_a_catalog_is_refused_until_its_tables_are_registered[None]",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="iceberg-removes-files-that-may-be-being-written",
        promise="expiry removes what a crash left, and nothing that is being written",
        file="spark/tailrace_spark/sinks/iceberg/maintenance.py",
        old="for age in (hours, max(hours, _UNREFERENCED_HOURS))\n",
        new="for age in (hours, hours)\n",
        needs=Needs.NOTHING,
        reds=(Red(HISTORY, "test_what_a_crash_left_is_removed_when_it_is_a_day_old", ASSERTED),),
    ),
    Breakage(
        name="iceberg-makes-empty-lists-of-null-ones",
        promise="every value comes back bit for bit",
        file="spark/tailrace_spark/sinks/iceberg/files.py",
        old="    batches = rows.cast(plain).combine_chunks().to_batches()\n",
        new="    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table([task])\n"
        "    batches = scan.select(target.names).cast(target).combine_chunks().to_batches()\n",
        needs=Needs.NOTHING,
        reds=(Red(HISTORY, "test_null_lists_of_structs_stay_null", ASSERTED),),
    ),
)
