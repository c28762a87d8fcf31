"""Breakages of sinks: what documents of a search server are written under, what becomes of letters, and what a crash
leaves behind.

Their tests start the server that they need.
"""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import argument, compare, constant, drop, give, insert, replace, unwrap

GROUPED: Final = "unit/spark/sinks/opensearch/test_pieces.py"
FILES: Final = "unit/spark/sinks/files/test_outlet.py"
PURGE: Final = "unit/spark/sinks/opensearch/test_sink.py"
LOCATIONS: Final = "unit/spark/sinks/test_locations.py"
RING_DELAY: Final = "unit/spark/sinks/test_ring_delay.py"
BESIDE: Final = "unit/spark/sinks/sql/test_beside.py"
CRASHES: Final = "unit/spark/sinks/opensearch/test_crashes.py"

BREAKAGES: Final = {
    "kafkas-avro-is-cut-out-of-any-message": breakage(
        "Kafka, Avro: Confluent's client reads what was written",
        "tailrace_spark.sinks.kafka.avro_splice:Splice.knows",
        constant("message.startswith(self._head)", True),
        Red("unit/spark/sinks/kafka/test_avro_splice.py", "test_a_message_of_another_schema_is_not_cut"),
    ),
    "a-mutation-is-in-the-files-of-its-days": breakage(
        "a mutation is in one file, wherever batches end and whatever dies",
        "tailrace_spark.sinks.files.outlet:FilesBatch._day",
        constant("record.transaction is None", True),
        Red("unit/spark/sinks/files/test_transactions.py", "test_a_mutation_is_in_one_file_whatever_its_times"),
    ),
    "files-of-an-attempt-that-was-cut-otherwise-stay": breakage(
        "each change is there once",
        "tailrace_spark.sinks.files.outlet:FilesBatch._left",
        constant("span.first <= name.first <= span.last", False),
        Red(FILES, "test_cut_off_at_any_step_a_batch_is_there_once_when_it_has_come_again[less, and the rest-tasks2]"),
        Red(FILES, "test_a_stream_without_its_checkpoint_writes_what_it_reads_in_the_stead_of_what_was_there"),
    ),
    "files-reach-further-than-was-noted": breakage(
        "each change is there once",
        "tailrace_spark.sinks.files.outlet:FilesBatch.commit",
        argument("self._driver.extend(...)", 1, "{}"),
        Red(FILES, "test_cut_off_at_any_step_a_batch_is_there_once_when_it_has_come_again[more behind it-tasks1]"),
    ),
    "a-stream-leaves-the-attempts-of-others": breakage(
        "nothing is lost of two streams below one path, or there twice",
        "tailrace_spark.sinks.files.outlet:FilesOutlet.attempt",
        drop("self.store.end_others(...)"),
        Red(FILES, "test_two_streams_cannot_write_below_one_root", "DID NOT RAISE"),
        Red("unit/spark/sinks/files/test_tasks.py", "test_a_late_task_places_and_removes_nothing", "DID NOT RAISE"),
    ),
    "a-request-ends-within-a-mutation": breakage(
        "a mutation is in one request",
        "tailrace_spark.sinks.http.outlet:_Requests.put",
        drop("record.transaction is None or ..."),
        Red("unit/spark/sinks/http/test_transactions.py", "test_requests_and_dead_letters_have_mutations_whole"),
    ),
    "a-stream-knows-no-ring-delay": breakage(
        "what was written behind a truncation stays, whichever host tells of that first",
        "tailrace_spark.sinks.registry:sink_of",
        constant("settings.generations.ring_delay_seconds", 0.0),
        Red(RING_DELAY, "test_a_sql_sink"),
        Red(RING_DELAY, "test_tables_of_a_lake_that_follow"),
        Red(RING_DELAY, "test_row_images"),
    ),
    "a-json-plan-knows-one-time": breakage(
        "a change log has each change whole, with the times of its cells",
        "tailrace_spark.sinks.changelog.json_plan:JsonPlan._cells",
        replace("cell.written != written or ...", "cell.written > written"),
        Red("unit/spark/sinks/changelog/test_json_plan.py", "test_rows_of_any_times_and_elements", "assert"),
    ),
    "documents-are-written-unchecked": breakage(
        "of two writers neither loses what the other wrote",
        "tailrace_spark.sinks.opensearch.bulk:lines",
        replace("action = ...", '''target, action = '{"_id":' + encode_basestring(op.id), "index"'''),
        # Two threads that write at once meet by luck; here one overtakes the other at a request of our choice.
        Red(CRASHES, "test_who_is_overtaken_reads_and_merges_again[_bulk]"),
    ),
    "a-partition-is-not-pending": breakage(
        "after a crash at any request a search finds what SELECT returns",
        "tailrace_spark.sinks.opensearch.merge:DocumentMerge._announce",
        unwrap("replace(head, pending=True)", "head"),
        Red(CRASHES, "test_a_deletion_cut_off_at_any_request_is_brought_to_its_end"),
    ),
    "nobody-looks-back": breakage(
        "of two writers neither loses what the other wrote",
        "tailrace_spark.sinks.opensearch.merge:DocumentMerge._once",
        insert("wrote = wrote and not self._headed", before="if wrote: ..."),
        Red(CRASHES, "test_a_deletion_by_another_while_a_new_row_is_written_covers_it"),
    ),
    "a-partition-is-of-two-groups": breakage(
        "several groups of partitions are written at once; a row's writes keep their order",
        "tailrace_spark.sinks.opensearch.pieces:groups",
        drop("if key in together: ..."),
        Red(GROUPED, "test_each_partition_is_whole_in_one_group"),
    ),
    "an-error-is-told-at-once": breakage(
        "an error is raised when no request is under way",
        "tailrace_spark.sinks.opensearch.pieces:IndexMerge._merge",
        replace(
            "ThreadPoolExecutor(...)",
            "__import__('contextlib').nullcontext(ThreadPoolExecutor(at_once, thread_name_prefix='tailrace-search'))",
        ),
        Red(GROUPED, "test_an_error_is_told_when_no_request_is_under_way[opensearch]"),
    ),
    "the-server-makes-the-index": breakage(
        "an index is never made by the server",
        "tailrace_spark.sinks.opensearch.client:SearchClient.bulk",
        constant("'/_bulk?require_alias=true&'", "/_bulk?require_alias=false&"),
        Red(
            "unit/spark/sinks/opensearch/test_server.py",
            "test_an_index_taken_away_under_a_request_is_not_made_by_it",
            r"DID NOT RAISE|_cat/indices",
        ),
    ),
    "what-was-replayed-is-written-beside-its-file": breakage(
        "a replay that dies at any step loses and doubles none",
        "tailrace_spark.sinks.files.outlet:FilesBatch._is_kept",
        drop("again.written.add(...)"),
        Red(FILES, "test_a_batch_that_has_what_was_written_again_takes_its_file_away"),
    ),
    "a-history-does-not-look-which-letters-it-has": breakage(
        "a replay that dies at any step loses and doubles none",
        "tailrace_spark.sinks.lake.history:AgainBatch._takes",
        constant("self._offsets", []),
        Red("unit/spark/sinks/lake/test_history_tasks.py", "test_what_is_written_again_is_there_once"),
    ),
    "a-part-of-an-update-is-written-again": breakage(
        "a replay that dies at any step loses and doubles none",
        "tailrace_spark.job.replay:_whole",
        replace("update.parts.whole", "update.parts.changes"),
        Red(
            "unit/spark/sinks/cassandra/log/test_dead_letters.py",
            "test_an_update_is_written_with_all_of_its_changes_wherever_a_part_of_the_letters_ends",
        ),
    ),
    "a-purge-says-so-afterwards": breakage(
        "nothing older comes to life again",
        "tailrace_spark.sinks.opensearch.sink:forget",
        insert(
            """
            if ops:
                client.bulk(index.write_alias, ops)
                ops = []
            """,
            before="if purged: ...",
        ),
        Red(PURGE, "test_a_purge_cut_off_at_any_request_brings_nothing_back"),
    ),
    "what-was-forgotten-is-asked-first": breakage(
        "nothing older comes to life again",
        "tailrace_spark.sinks.opensearch.merge:DocumentMerge._read",
        replace(
            "[*heads, *read.ids.values(), TABLE_ID]",
            "[TABLE_ID, *heads, *read.ids.values()]",
        ),
        Red(PURGE, "test_what_another_forgets_between_two_questions_brings_nothing_back"),
    ),
    "a-path-is-shown": breakage(
        "without anything that may be a secret",
        "tailrace_spark.sinks.http.settings:HttpSinkSettings.location",
        give("self.url.partition('?')[0] or origin(self.url)"),
        Red(LOCATIONS, "test_who_does_not_answer_is_named_without_secrets[http-said1]"),
        Red(LOCATIONS, "test_a_checkpoint_tells_endpoints_of_one_host_apart"),
    ),
    "a-truncation-that-was-set-aside-is-forgotten": breakage(
        "a truncation that was set aside takes nothing that is behind it",
        "tailrace_spark.sinks.table_faults:TruncationsAside.note",
        replace("delivered.change.op is Op.TRUNCATE", "False"),
        Red(
            "unit/spark/sinks/delta/test_current.py",
            "TestDeltaCurrent::test_a_truncation_that_was_set_aside_takes_nothing_that_is_behind_it",
            "assert",
        ),
        Red(
            "unit/spark/sinks/images/test_store.py",
            "test_a_truncation_that_was_set_aside_takes_nothing_that_is_behind_it",
            "assert",
        ),
    ),
    "what-is-above-a-refused-row-is-no-letter": breakage(
        "what a search server refuses stays a dead letter, with the deletions and static rows that it came with",
        "tailrace_spark.sinks.opensearch.pieces:_refused",
        replace("of_partitions.get(key)", "outcome.refused.get((key, state_key))"),
        Red(
            "unit/spark/sinks/opensearch/test_tasks.py",
            "test_a_deletion_that_a_refused_row_came_with_is_a_letter_too",
            "assert",
        ),
        Red(
            "unit/spark/sinks/opensearch/test_tasks.py", "test_a_static_row_that_its_rows_are_refused_with_is_a_letter"
        ),
    ),
    "a-stream-knows-nothing-of-a-replay-beside-it": breakage(
        "a stream may write while letters are replayed",
        "tailrace_spark.sinks.state_store.fences:TableTurns.take",
        give("False"),
        Red(BESIDE, "test_a_stream_knows_of_the_first_deletion_that_a_replay_writes[sqlite]", "assert"),
        Red(BESIDE, "test_a_stream_knows_of_a_truncation_that_a_replay_writes[sqlite]", "assert"),
    ),
    "a-deletion-spares-what-was-written-at-its-microsecond": breakage(
        "the sink shows what SELECT answers",
        "tailrace_spark.rowstate.cells:covers",
        compare("written <= deletion.written", "<"),
        Red("integration/test_oracle_sinks.py", "test_tables_show_what_select_answers[few-delta]", "assert told =="),
        needs=Needs.NODE,
    ),
}
