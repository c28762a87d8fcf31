"""Breakages of sinks: what documents of a search server are written under, and what a crash leaves behind.

Their tests start the server that they need, those of Iceberg the run's Spark.
"""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

CLIENT: Final = "spark/tailrace_spark/sinks/opensearch_client.py"
MERGE: Final = "spark/tailrace_spark/sinks/opensearch_merge.py"
LIVE: Final = "unit/spark/sinks/test_opensearch_live.py"
ICEBERG: Final = "spark/tailrace_spark/sinks/iceberg_catalog.py"

BREAKAGES: Final = (
    Breakage(
        name="documents-are-written-unchecked",
        promise="of two writers neither loses what the other wrote",
        file=CLIENT,
        old='    action = "index" if op.version is not None or op.unchecked else "create"\n',
        new='    where, action = {"_id": op.id}, "index"\n',
        needs=Needs.NOTHING,
        reds=(
            Red(LIVE, "test_of_two_writers_neither_loses_what_the_other_wrote", ASSERTED),
            Red(LIVE, "test_who_is_overtaken_reads_and_merges_again[_bulk]", ASSERTED),
        ),
    ),
    Breakage(
        name="a-partition-is-not-pending",
        promise="after a crash at any request a search finds what SELECT returns",
        file=MERGE,
        old="self._head_op(read, key, replace(head, pending=True), shown or None)",
        new="self._head_op(read, key, head, shown or None)",
        needs=Needs.NOTHING,
        reds=(Red(LIVE, "test_a_deletion_cut_off_at_any_request_is_brought_to_its_end", ASSERTED),),
    ),
    Breakage(
        name="nobody-looks-back",
        promise="of two writers neither loses what the other wrote",
        file=MERGE,
        old="        if wrote:\n",
        new="        if wrote and not self._headed:\n",
        needs=Needs.NOTHING,
        reds=(Red(LIVE, "test_a_deletion_by_another_while_a_new_row_is_written_covers_it", ASSERTED),),
    ),
    Breakage(
        name="the-server-makes-the-index",
        promise="an index is never made by the server",
        file=CLIENT,
        old="/_bulk?require_alias=true",
        new="/_bulk?require_alias=false",
        needs=Needs.NOTHING,
        reds=(Red(LIVE, "test_an_index_taken_away_under_a_request_is_not_made_by_it", r"DID NOT RAISE|_cat/indices"),),
    ),
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
