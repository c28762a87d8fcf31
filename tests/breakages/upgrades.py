"""Breakages of what carries on from one version to the next."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Red, breakage
from tests.breakages.mutations import constant, drop, replace, unwrap

SQL: Final = "unit/spark/sinks/sql/test_versions.py"
RECORDS: Final = "unit/upgrades/test_records.py"

LETTERS: Final = "unit/spark/sinks/test_letters.py"
RELEASE: Final = "unit/retention/test_release.py"
SERVERS: Final = "integration/upgrades/test_servers.py"
GOES_ON: Final = "what the last version kept goes on under this one"
ANOTHER_READING: Final = r"\(done\.id, done\.began, done\.log_ends\) =="

BREAKAGES: Final = {
    "dead-letters-of-a-later-version-are-sent": breakage(
        "what another version wrote to keep is refused",
        "tailrace_spark.batch.delivery:DeadLetter.from_json",
        drop("require_format(...)"),
        Red(RECORDS, "test_what_another_version_wrote_is_refused[99-dead-letter]", "DID NOT RAISE"),
        Red(LETTERS, "test_a_dead_letter_of_another_version_is_refused", "DID NOT RAISE"),
    ),
    "a-lakes-tables-have-no-number": breakage(
        "what another version wrote to keep is refused",
        "tailrace_spark.sinks.delta.store:DeltaStore.open",
        drop("require_readable(uri, table)"),
        Red("unit/spark/sinks/delta/test_history.py", "test_a_table_of_a_later_version_is_refused", "DID NOT RAISE"),
    ),
    "a-spool-has-the-epoch-of-a-later-version": breakage(
        "what another version wrote to keep is refused",
        "tailrace.retention.spool:_last_epoch",
        drop("require_format(...)"),
        Red(RELEASE, "test_the_epoch_that_another_version_noted_ends_the_start", "DID NOT RAISE"),
    ),
    "a-later-versions-tables-are-written": breakage(
        "tables that another version wrote into a SQL database are refused",
        "tailrace_spark.sinks.state_store.tables:make_tables",
        unwrap("formats.get(name, FORMAT)", "FORMAT"),
        Red(SQL, "test_tables_of_another_format_are_refused[sqlite-tailrace_streams]", "DID NOT RAISE"),
    ),
    "parked-mutations-of-before-are-dead": breakage(
        "what an earlier version wrote to keep is read as it was meant",
        "tailrace.publish.offsets:decode_parked",
        replace("bool(record['dead'])", "not record['dead']"),
        Red(RECORDS, "test_what_an_earlier_version_wrote_is_read[parked-0.1.0]"),
    ),
    "an-upgraded-agent-reads-its-segment-again": breakage(
        GOES_ON,
        "tailrace.capture.cdcraw:CdcRaw._open_next",
        constant("self._at.offset if ... else ...", 0),
        Red(
            "integration/upgrades/test_installation.py",
            "test_what_the_last_version_kept_goes_on",
            "assert in_log_order",
        ),
        session="upgrades",
    ),
    "a-snapshot-in-progress-begins-at-an-upgrade": breakage(
        GOES_ON,
        "tailrace_spark.job.snapshot_run:SnapshotRun._round",
        replace("snapshot.began", "snapshot.round"),
        Red(SERVERS, "test_a_new_server_goes_on_with_what_an_old_one_ran", ANOTHER_READING),
        session="upgrades",
    ),
}
