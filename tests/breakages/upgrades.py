"""Breakages of what carries on from one version to the next."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

SQL: Final = "unit/spark/sinks/sql/test_earlier_versions.py"
RECORDS: Final = "unit/upgrades/test_records.py"
NOTES: Final = "spark/tailrace_spark/job/notes.py"

LETTERS: Final = "unit/spark/sinks/test_letters.py"
SNAPSHOTS: Final = "integration/upgrades/test_snapshots.py"
GOES_ON: Final = "what the last version kept goes on under this one"
ANOTHER_READING: Final = r"\(done\.id, done\.began, done\.log_ends\) =="

BREAKAGES: Final = (
    Breakage(
        name="dead-letters-of-a-later-version-are-sent",
        promise="what a later version wrote to keep is refused",
        file="spark/tailrace_spark/batch/delivery.py",
        old='value.get("format", FIRST), LETTER_FORMAT)',
        new="FIRST, LETTER_FORMAT)",
        needs=Needs.NOTHING,
        reds=(
            Red(RECORDS, "test_what_a_later_version_wrote_is_refused[dead-letter]", "DID NOT RAISE"),
            Red(LETTERS, "test_a_file_of_a_later_versions_letters_is_refused", "DID NOT RAISE"),
        ),
    ),
    Breakage(
        name="a-lakes-tables-have-no-number",
        promise="what a later version wrote to keep is refused",
        file="spark/tailrace_spark/sinks/delta/store.py",
        old="        require_readable(uri, table)\n",
        new="",
        needs=Needs.NOTHING,
        reds=(Red(LETTERS, "test_a_lake_of_a_later_version_is_refused", "DID NOT RAISE"),),
    ),
    Breakage(
        name="a-spool-has-the-epoch-of-a-later-version",
        promise="what a later version wrote to keep is refused",
        file="connector/tailrace/retention/spool.py",
        old='note.get("format", FIRST), EPOCH_FORMAT)',
        new="FIRST, EPOCH_FORMAT)",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/retention/test_moving.py",
                "test_the_epoch_that_a_later_version_noted_ends_the_start",
                "DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="a-note-of-a-later-version-is-read",
        promise="what a later version wrote to keep is refused",
        file=NOTES,
        old='note.get("format", FIRST), FORMAT, ',
        new="FIRST, FORMAT, ",
        needs=Needs.NOTHING,
        reds=(Red(RECORDS, "test_what_a_later_version_wrote_is_refused[checkpoint-batch]", "DID NOT RAISE"),),
    ),
    Breakage(
        name="a-later-versions-tables-are-written",
        promise="tables that a later version wrote into a SQL database are refused",
        file="spark/tailrace_spark/sinks/state_store/formats.py",
        old="formats.get(name, FIRST), FORMAT, ",
        new="FIRST, FORMAT, ",
        needs=Needs.NOTHING,
        reds=(Red(SQL, "test_tables_of_a_later_format_are_refused[sqlite-tailrace_streams]", "DID NOT RAISE"),),
    ),
    Breakage(
        name="a-database-of-before-gets-no-formats",
        promise="tables of before there was a number are of format 1, and have it from then on",
        file="spark/tailrace_spark/sinks/state_store/formats.py",
        old="if name not in formats]",
        new="if name in formats]",
        needs=Needs.NOTHING,
        reds=(Red(SQL, "test_a_database_without_formats_goes_on_and_gets_them[sqlite]", ASSERTED),),
    ),
    Breakage(
        name="parked-mutations-of-before-are-dead",
        promise="what an earlier version wrote to keep is read as it was meant",
        file="connector/tailrace/publish/offsets.py",
        old='bool(record["dead"]),',
        new='not record["dead"],',
        needs=Needs.NOTHING,
        reds=(Red(RECORDS, "test_what_an_earlier_version_wrote_is_read[parked-0.1.0]", ASSERTED),),
    ),
    Breakage(
        name="an-upgraded-agent-reads-its-segment-again",
        promise=GOES_ON,
        file="connector/tailrace/capture/cdcraw.py",
        old="        start_offset = self._at.offset if id == self._at.segment else 0\n",
        new="        start_offset = 0\n",
        needs=Needs.MORE,
        session="upgrades",
        reds=(
            Red(
                "integration/upgrades/test_installation.py",
                "test_what_the_last_version_kept_goes_on",
                "assert in_log_order",
            ),
            Red(
                "integration/upgrades/test_ring.py",
                "test_a_ring_is_upgraded_node_by_node_under_load",
                "assert in_log_order",
            ),
        ),
    ),
    Breakage(
        name="a-snapshot-in-progress-begins-at-an-upgrade",
        promise=GOES_ON,
        file="spark/tailrace_spark/job/snapshot_run.py",
        old="        if snapshot.began is None:\n",
        new="        if snapshot.round is None:\n",
        needs=Needs.MORE,
        session="upgrades",
        reds=(
            Red(
                SNAPSHOTS,
                "test_a_new_stream_goes_on_with_the_snapshot_of_an_old_one[stopped-postgresql]",
                ANOTHER_READING,
            ),
            Red(SNAPSHOTS, "test_a_new_server_goes_on_with_the_snapshots_of_an_old_one[killed]", ANOTHER_READING),
        ),
    ),
    Breakage(
        name="an-upgraded-command-publishes-from-the-first-row",
        promise=GOES_ON,
        file="spark/tailrace_spark/snapshot/publication.py",
        old="            earlier = records.unfinished(self._survey.table.id, self._settings.token_range)\n",
        new="            earlier = None\n",
        needs=Needs.MORE,
        session="upgrades",
        reds=(Red(SNAPSHOTS, "test_a_new_command_goes_on_with_what_an_old_one_has_published", r'line\["snapshot"\]'),),
    ),
)
