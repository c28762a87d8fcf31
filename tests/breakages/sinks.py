"""Breakages of sinks: what documents of a search server are written under, what becomes of letters, and what a crash
leaves behind.

Their tests start the server that they need.
"""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

CLIENT: Final = "spark/tailrace_spark/sinks/opensearch/client.py"
MERGE: Final = "spark/tailrace_spark/sinks/opensearch/merge.py"
GROUPS: Final = "spark/tailrace_spark/sinks/opensearch/groups.py"
GROUPED: Final = "unit/spark/sinks/opensearch/test_groups.py"
LETTERS: Final = "unit/spark/sinks/test_letters.py"
PACKS: Final = "unit/spark/sinks/files/test_compaction.py"
PURGE: Final = "unit/spark/sinks/opensearch/test_purge.py"
LOCATIONS: Final = "unit/spark/sinks/test_locations.py"
RING_DELAY: Final = "unit/spark/sinks/test_ring_delay.py"
CRASHES: Final = "unit/spark/sinks/opensearch/test_crashes.py"

BREAKAGES: Final = (
    Breakage(
        name="kafkas-avro-is-cut-out-of-any-message",
        promise="Kafka, Avro: Confluent's client reads what was written",
        file="spark/tailrace_spark/sinks/kafka/avro_splice.py",
        old="if not message.startswith(self._head) or not self._knows_key",
        new="if not message or not self._knows_key",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/kafka/test_avro_splice.py",
                "test_a_message_of_another_schema_is_not_cut",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="files-tell-by-a-change-what-of-its-mutation-is-committed",
        promise="a mutation is committed whole, wherever batches end and whatever dies",
        file="spark/tailrace_spark/sinks/files/outlet.py",
        old="if not self.take(record.first_id):",
        new="if not self.take(record.record_id):",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/files/test_transactions.py",
                "test_each_mutation_is_committed_whole_and_once",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-request-ends-within-a-mutation",
        promise="a mutation is in one request",
        file="spark/tailrace_spark/sinks/http/outlet.py",
        old=" and (record.transaction is None or record.transaction.ends):",
        new=":",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/http/test_transactions.py",
                "test_requests_and_dead_letters_have_mutations_whole",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-stream-knows-no-ring-delay",
        promise="what was written behind a truncation stays, whichever host tells of that first",
        file="spark/tailrace_spark/sinks/registry.py",
        old="    delay = settings.generations.ring_delay_seconds\n",
        new="    delay = 0.0\n",
        needs=Needs.NOTHING,
        reds=(
            Red(RING_DELAY, "test_a_sql_sink", ASSERTED),
            Red(RING_DELAY, "test_tables_of_a_lake_that_follow", ASSERTED),
            Red(RING_DELAY, "test_row_images", ASSERTED),
        ),
    ),
    Breakage(
        name="images-know-no-ring-delay",
        promise="what was written behind a truncation has images, whichever host tells of that first",
        file="spark/tailrace_spark/sinks/images/planning.py",
        old="        around.ring_delay,\n",
        new="        0.0,\n",
        needs=Needs.NOTHING,
        reds=(Red(RING_DELAY, "test_row_images", ASSERTED),),
    ),
    Breakage(
        name="a-truncation-goes-by-write-times",
        promise="a truncation takes what stands before it in each host's log, whatever the write times",
        file="spark/tailrace_spark/rowstate/truncation.py",
        old="            elif source.position <= newest.upto:\n",
        new="            elif change_time(change) <= newest.written:\n",
        needs=Needs.NOTHING,
        reds=(
            Red("unit/spark/merge/test_truncation.py", "test_a_store_ends_as_a_select_of_all_replicas", "assert"),
            Red(
                "unit/spark/sinks/sql/test_tasks.py",
                "test_a_truncation_that_a_task_meets_is_the_drivers[postgresql]",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-json-plan-knows-one-time",
        promise="a change log has each change whole, with the times of its cells",
        file="spark/tailrace_spark/sinks/changelog/json_plan.py",
        old="            if cell.written != written or cell.ttl != ttl or cell.expires != expires:\n",
        new="            if cell.written > written:\n",
        needs=Needs.NOTHING,
        reds=(Red("unit/spark/sinks/changelog/test_json_plan.py", "test_rows_of_any_times_and_elements", "assert"),),
    ),
    Breakage(
        name="documents-are-written-unchecked",
        promise="of two writers neither loses what the other wrote",
        file="spark/tailrace_spark/sinks/opensearch/bulk.py",
        old='    action = "index" if version is not None or op.unchecked else "create"\n',
        new='    target, action = \'{"_id":\' + encode_basestring(op.id), "index"\n',
        needs=Needs.NOTHING,
        reds=(
            # Two threads that write at once meet by luck; here one overtakes the other at a request of our choice.
            Red(CRASHES, "test_who_is_overtaken_reads_and_merges_again[_bulk]", ASSERTED),
        ),
    ),
    Breakage(
        name="a-partition-is-not-pending",
        promise="after a crash at any request a search finds what SELECT returns",
        file=MERGE,
        old="self._head_op(read, key, replace(head, pending=True), source or None)",
        new="self._head_op(read, key, head, source or None)",
        needs=Needs.NOTHING,
        reds=(Red(CRASHES, "test_a_deletion_cut_off_at_any_request_is_brought_to_its_end", ASSERTED),),
    ),
    Breakage(
        name="nobody-looks-back",
        promise="of two writers neither loses what the other wrote",
        file=MERGE,
        old="        if wrote:\n",
        new="        if wrote and not self._headed:\n",
        needs=Needs.NOTHING,
        reds=(Red(CRASHES, "test_a_deletion_by_another_while_a_new_row_is_written_covers_it", ASSERTED),),
    ),
    Breakage(
        name="a-partition-is-of-two-groups",
        promise="several groups of partitions are written at once; a row's writes keep their order",
        file=GROUPS,
        old="        if key in together:\n            continue\n",
        new="",
        needs=Needs.NOTHING,
        reds=(Red(GROUPED, "test_each_partition_is_whole_in_one_group", ASSERTED),),
    ),
    Breakage(
        name="an-error-is-told-at-once",
        promise="an error is raised when no request is under way",
        file=GROUPS,
        old='    with ThreadPoolExecutor(at_once, thread_name_prefix="tailrace-search") as pool:\n',
        new='    if pool := ThreadPoolExecutor(at_once, thread_name_prefix="tailrace-search"):\n',
        needs=Needs.NOTHING,
        reds=(Red(GROUPED, "test_an_error_is_told_when_no_request_is_under_way[opensearch]", ASSERTED),),
    ),
    Breakage(
        name="the-server-makes-the-index",
        promise="an index is never made by the server",
        file=CLIENT,
        old="/_bulk?require_alias=true",
        new="/_bulk?require_alias=false",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/opensearch/test_server.py",
                "test_an_index_taken_away_under_a_request_is_not_made_by_it",
                r"DID NOT RAISE|_cat/indices",
            ),
        ),
    ),
    Breakage(
        name="a-manifest-forgets-which-letters-it-has",
        promise="a replay that dies at any step loses and doubles none",
        file="spark/tailrace_spark/sinks/files/dead_letters.py",
        old="self._replaying.commit(files, {}, letters, done)",
        new="self._replaying.commit(files, {}, letters)",
        needs=Needs.NOTHING,
        reds=(Red(LETTERS, "test_a_manifest_says_which_letters_it_has", ASSERTED),),
    ),
    Breakage(
        name="a-manifest-is-written-over-anothers",
        promise="a replay that dies at any step loses and doubles none",
        file="spark/tailrace_spark/sinks/files/store.py",
        old="                os.link(self._whole(first), full_path)\n",
        new="                os.link(self._whole(first), full_path + '~'), os.replace(full_path + '~', full_path)\n",
        needs=Needs.NOTHING,
        reds=(Red(LETTERS, "test_a_manifest_is_not_written_over_another", ASSERTED),),
    ),
    Breakage(
        name="a-history-does-not-look-which-letters-it-has",
        promise="a replay that dies at any step loses and doubles none",
        file="spark/tailrace_spark/sinks/lake/dead_letters.py",
        old="            existing = set(_keys(rows))\n",
        new="            existing = set(_keys(rows[:0]))\n",
        needs=Needs.NOTHING,
        reds=(Red(LETTERS, "test_a_history_is_asked_which_letters_it_has", ASSERTED),),
    ),
    Breakage(
        name="a-history-that-comes-again-does-not-look-out-for-replays",
        promise="a replay that dies at any step loses and doubles none",
        file="spark/tailrace_spark/sinks/lake/history_table.py",
        old="        if any(self._end(*source) < self.lettered(*source) for source in self.ends.moved):\n",
        new="        if any(self._end(*source) > self.lettered(*source) for source in self.ends.moved):\n",
        needs=Needs.NOTHING,
        reds=(Red(LETTERS, "test_of_a_history_and_a_replay_one_fails", ASSERTED),),
    ),
    Breakage(
        name="a-part-of-an-update-is-written-again",
        promise="a replay that dies at any step loses and doubles none",
        file="spark/tailrace_spark/job/replay.py",
        old="                if update.parts.whole:\n",
        new="                if update.parts.changes:\n",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/cassandra/log/test_dead_letters.py",
                "test_an_update_is_written_with_all_of_its_changes_wherever_a_part_of_the_letters_ends",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-free-name-is-taken-for-the-next",
        promise="a compaction loses and doubles nothing",
        file="spark/tailrace_spark/sinks/files/commits.py",
        old="        if not created or (packs and packs[-1].last >= commit.number):\n",
        new="        if not created or (packs and packs[-1].last < 0):\n",
        needs=Needs.NOTHING,
        reds=(Red(PACKS, "test_an_overtaken_stream_writes_nothing_into_a_pack", ASSERTED),),
    ),
    Breakage(
        name="the-pack-with-less-is-read",
        promise="a compaction loses and doubles nothing",
        file="spark/tailrace_spark/sinks/files/manifest.py",
        old="(name.first, -name.last, name.id)",
        new="(name.first, name.last, name.id)",
        needs=Needs.NOTHING,
        reds=(Red(PACKS, "test_two_compactions_double_nothing", ASSERTED),),
    ),
    Breakage(
        name="replaced-files-go-at-once",
        promise="a compaction loses and doubles nothing",
        file="spark/tailrace_spark/sinks/files/compaction.py",
        old='            if self._clock() - self._noted(name)["at"] >= hours * 3600:\n',
        new="            if hours >= 0:\n",
        needs=Needs.NOTHING,
        reds=(Red(PACKS, "test_a_reader_beside_a_compaction_sees_each_change_once", r"done\.removed == 0"),),
    ),
    Breakage(
        name="a-purge-says-so-afterwards",
        promise="nothing older comes to life again",
        file="spark/tailrace_spark/sinks/opensearch/purge.py",
        old="""    if purged:
        index.note(""",
        new="""    gone = len(client.bulk(index.write_alias, ops).done) if ops else 0
    ops = ops[:0]
    if purged and gone:
        index.note(""",
        needs=Needs.NOTHING,
        reds=(Red(PURGE, "test_a_purge_cut_off_at_any_request_brings_nothing_back", ASSERTED),),
    ),
    Breakage(
        name="a-truncation-of-before-is-taken-for-done",
        promise="what an earlier version noted of a table goes on",
        file="spark/tailrace_spark/sinks/opensearch/table_entry.py",
        old="additions.get(_PENDING, True)",
        new="not additions.get(_PENDING, False)",
        needs=Needs.NOTHING,
        reds=(
            Red(
                "unit/spark/sinks/opensearch/test_sink.py",
                "test_what_an_earlier_version_knew_of_a_table_is_read",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="what-was-forgotten-is-asked-first",
        promise="nothing older comes to life again",
        file="spark/tailrace_spark/sinks/opensearch/merge.py",
        old="        ids = [*heads, *read.ids.values(), TABLE_ID]\n",
        new="        ids = [TABLE_ID, *heads, *read.ids.values()]\n",
        needs=Needs.NOTHING,
        reds=(Red(PURGE, "test_what_another_forgets_between_two_questions_brings_nothing_back", ASSERTED),),
    ),
    Breakage(
        name="a-purge-takes-what-another-wrote",
        promise="none of what is shown",
        file="spark/tailrace_spark/sinks/opensearch/purge.py",
        old="        return Op(document.id, document.version, None), written\n",
        new="        return Op(document.id, None, None), written\n",
        needs=Needs.NOTHING,
        reds=(Red(PURGE, "test_a_document_that_another_writes_meanwhile_stays", ASSERTED),),
    ),
    Breakage(
        name="a-path-is-shown",
        promise="without anything that may be a secret",
        file="spark/tailrace_spark/sinks/http/settings.py",
        old="        return origin(self.url)\n",
        new='        return self.url.partition("?")[0] or origin(self.url)\n',
        needs=Needs.NOTHING,
        reds=(
            Red(LOCATIONS, "test_who_does_not_answer_is_named_without_secrets[http-said1]", ASSERTED),
            Red(LOCATIONS, "test_a_checkpoint_tells_endpoints_of_one_host_apart", ASSERTED),
        ),
    ),
)
