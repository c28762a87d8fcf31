"""Breakages of the stream job: its checkpoint, its restarts, what it reads while it runs, what it tells of itself."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import argument, constant, drop, give, insert, negate, replace, together, unwrap

STREAM: Final = "integration/test_stream.py"
LOST: Final = "integration/faults/test_lost_topics.py"
RESTORED: Final = "integration/faults/test_restored_sinks.py"
ONE_COPY: Final = "integration/test_stream_one_copy.py"
BATCH_LOG: Final = "integration/test_batch_log.py"
OTHER: Final = "test_another_formats_checkpoint_is_refused"
RUNNING: Final = "test_a_running_stream_reads_new_tables_and_tells_of_itself"

BREAKAGES: Final = {
    "a-broker-that-comes-back-is-looked-for-in-ten-minutes": breakage(
        "a stream goes on soon after its broker restarted",
        "tailrace_spark.source.kafka:_PROMPT",
        give(
            "{'kafka.fetch.max.wait.ms': '1', 'kafka.reconnect.backoff.ms': '600000', "
            "'kafka.reconnect.backoff.max.ms': '600000'}"
        ),
        Red("integration/faults/test_broker_restart.py", "test_a_stream_goes_on_after_its_broker_restarted"),
        needs=Needs.KAFKA,
    ),
    "a-noted-batch-is-taken-for-written": breakage(
        "killed at any point, the stream goes on, and the sink equals the source",
        "tailrace_spark.job.stream:Stream._written",
        replace(
            "self._report(...)",
            "if self._files.read(f'{batch}.json') is None: self._report(self._writer.write(frame, batch))",
        ),
        Red(
            "integration/test_stream_kills.py",
            "test_a_killed_stream_goes_on[sqlite]",
            r"an equal target: not|do not fit together",
        ),
        session="stream",
    ),
    "a-sink-is-taken-at-the-checkpoints-word": breakage(
        "a sink that was deleted, or restored from an older backup, stops the stream",
        "tailrace_spark.batch.delivery:missing_from_sink",
        insert(
            "if stored is None or stored.batch < committed.batch: return None",
            before="if stored is None: ...",
        ),
        Red(
            RESTORED,
            "test_a_database_restored_from_an_older_backup_stops_the_stream_until_losses_stop_nothing",
            "DID NOT RAISE",
        ),
        needs=Needs.KAFKA,
    ),
    "two-streams-share-a-checkpoint": breakage(
        "a second stream with one checkpoint is refused",
        "tailrace_spark.job.checkpoint:lock_checkpoint",
        constant("lock_soon(...)", True),
        Red("unit/spark/job/test_checkpoint.py", "test_a_second_stream_is_refused_with_the_name_of_the_first"),
    ),
    "a-deleted-file-is-written-on": breakage(
        "a SQLite file that is deleted under a running stream stops it",
        "tailrace_spark.sinks.state_store.engine:_follow_file._used",
        constant("record.info['file'] != _identity(file)", False),
        Red(RESTORED, "test_a_database_deleted_under_a_running_stream_stops_it"),
        needs=Needs.KAFKA,
    ),
    "a-deleted-topic-stops-all": breakage(
        "a topic that is deleted stops its own table alone",
        "tailrace_spark.job.topic_watch:TopicWatch.recover",
        negate("not losses"),
        Red(LOST, "test_a_deleted_topic_stops_its_table_alone", "the stream ended: "),
        needs=Needs.KAFKA,
    ),
    "a-topic-is-its-name": breakage(
        "a topic that was created again is read from its beginning",
        "tailrace_spark.job.topic_watch:TopicWatch.__init__",
        replace("{**earlier.topic_ids, **note.get('ids', {})}", "{}"),
        Red(LOST, "test_a_topic_created_again_is_read_from_its_beginning_where_losses_stop_nothing"),
        needs=Needs.KAFKA,
    ),
    "a-topic-made-again-is-the-same-reading": breakage(
        "a topic that was made again is written by sinks that keep each change",
        "tailrace_spark.job.topic_watch:TopicWatch._leave",
        drop("self._gone.add(topic)"),
        Red(LOST, "test_a_log_of_changes_has_all_of_a_topic_that_was_created_again", r"logged\(LOST\) == "),
        needs=Needs.KAFKA,
    ),
    "read-on-one-record-later": breakage(
        "what is left of a topic that lost records is read, and the offsets of its loss are reported",
        "tailrace_spark.job.offsets:_trimmed",
        argument("Span(partition, first, start)", 2, "start + 1"),
        Red(LOST, "test_records_deleted_before_they_were_read_are_told_by_their_offsets[False]", "not read: "),
        needs=Needs.KAFKA,
    ),
    "javas-end-is-a-traceback": breakage(
        "the end of Spark's Java is reported in one line",
        "tailrace_spark.job.stream:Stream.run",
        replace("JAVA_GONE", "ZeroDivisionError"),
        Red(LOST, "test_a_java_that_died_is_told_in_a_line", '"Traceback" not in words'),
        session="stream",
    ),
    "windows-of-all-copies": breakage(
        "windows of write times count each change once",
        "tailrace_spark.source.kafka:one_copy_by_event_time",
        unwrap("(...).dropDuplicatesWithinWatermark(...)", "(...).withWatermark(...)"),
        Red(ONE_COPY, "test_windows_of_write_times_over_one_copy_of_three", r"\[\(60, 2\), \(120, 2\)"),
        needs=Needs.KAFKA,
    ),
    "a-batch-is-never-cut": breakage(
        "a micro-batch is written in parts of bounded bytes",
        "tailrace_spark.job.batch_records:parts_of",
        replace("max(...)", "len(ends)"),
        Red(
            "integration/test_stream_parts.py",
            "test_a_batch_too_large_for_memory_is_written_in_parts_and_comes_again_in_the_same[Parts-None]",
            "max\\(second.sizes\\)|DID NOT RAISE",
        ),
        needs=Needs.KAFKA,
    ),
    "only-todays-topics": breakage(
        "a topic that appears is read without a restart",
        "tailrace_spark.source.kafka:read_messages",
        together(
            constant("'subscribePattern'", "subscribe"),
            replace(
                "without_topics(...)",
                """
                ','.join(
                    name
                    for name in __import__('confluent_kafka.admin').admin.AdminClient(settings.kafka.reveal())
                    .list_topics(timeout=10).topics
                    if name.startswith(f'{settings.topics.prefix}.') and name.count('.') > 1
                )
                """,
            ),
        ),
        Red(STREAM, RUNNING, "6 records: not in"),
        needs=Needs.KAFKA,
    ),
    "metrics-of-nothing": breakage(
        "/metrics of a running stream tells what it does",
        "tailrace_spark.cli.stream:_follow",
        argument("Stream(...)", "metrics", None),
        Red("integration/test_stream_command.py", "test_the_command_follows_and_ends", "records_total"),
        session="stream",
    ),
    "a-newer-checkpoint-is-read-on": breakage(
        "a checkpoint of another format is refused",
        "tailrace_spark.job.checkpoint:_noted",
        argument("require_format(...)", 2, "FORMAT + 1"),
        Red(STREAM, OTHER, "DID NOT RAISE"),
        needs=Needs.KAFKA,
    ),
    "a-note-is-written-anew": breakage(
        "a batch that comes again is assigned as before",
        "tailrace_spark.job.generation_log:BatchLog.used",
        insert(
            "remaining = remaining if len(remaining) == len(published) else []",
            before="if remaining: ...",
        ),
        Red(BATCH_LOG, "test_what_was_known_then_is_used_again[local]"),
        Red(BATCH_LOG, "test_what_was_known_then_is_used_again[hadoop]"),
        needs=Needs.KAFKA,
    ),
}
