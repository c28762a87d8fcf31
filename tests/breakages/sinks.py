"""Breakages of sinks: what documents of a search server are written under, what a crash leaves behind; Delta's columns.

Their tests start the server that they need.
"""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

CLIENT: Final = "spark/tailrace_spark/sinks/opensearch_client.py"
MERGE: Final = "spark/tailrace_spark/sinks/opensearch_merge.py"
PLAIN: Final = "unit/spark/rowstate/test_plain.py"
ROWS: Final = "unit/spark/sinks/test_plain_rows.py"
COLUMNS: Final = "unit/spark/sinks/test_change_columns.py"
LIVE: Final = "unit/spark/sinks/test_opensearch_live.py"

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
        name="the-smaller-of-two-values-holds",
        promise="a table reads as SELECT, whatever comes in what order how often",
        file="spark/tailrace_spark/rowstate/plain.py",
        old="known.values[at] > value)",
        new="known.values[at] < value)",
        needs=Needs.NOTHING,
        reds=(Red(PLAIN, "test_plain_changes_merge_as_states_do", ASSERTED),),
    ),
    Breakage(
        name="what-a-partition-deletion-covers-is-merged-as-plain",
        promise="a table reads as SELECT, whatever comes in what order how often",
        file="spark/tailrace_spark/sinks/plain_rows.py",
        old="            if clustering < ROW or ",
        new="            if ",
        needs=Needs.NOTHING,
        reds=(Red(ROWS, "test_states_and_rows_are_those_of_objects", ASSERTED),),
    ),
    Breakage(
        name="rows-that-are-there-are-appended",
        promise="a table reads as SELECT, whatever comes in what order how often",
        file="spark/tailrace_spark/sinks/delta_current.py",
        old="new=not hidden and stored.at.keys().isdisjoint(put))",
        new="new=not hidden)",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/spark/sinks/test_delta_current.py", "test_rows_that_are_there_are_put_in_their_place", ASSERTED),
        ),
    ),
    Breakage(
        name="what-columns-cannot-say-is-left-out",
        promise="every value comes back bit for bit",
        file="spark/tailrace_spark/sinks/delta_history.py",
        old="        if odd:\n",
        new="        if odd and not batch:\n",
        needs=Needs.NOTHING,
        reds=(Red(COLUMNS, "test_more_than_columns_take_at_once_are_all_there", ASSERTED),),
    ),
)
