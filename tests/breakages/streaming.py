"""Breakages of the stream job: its checkpoint, its restarts, what it reads while it runs, what it tells of itself."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import Needs, Red, breakage
from tests.breakages.mutations import argument, compare, constant, drop, give, insert, negate, replace, together, unwrap

STREAM: Final = "integration/test_stream.py"
LOST: Final = "integration/faults/test_lost_topics.py"
RESTORED: Final = "integration/faults/test_restored_sinks.py"
ONE_COPY: Final = "integration/test_stream_one_copy.py"
BATCH_LOG: Final = "integration/test_batch_log.py"
OTHER: Final = "test_another_formats_checkpoint_is_refused"
RUNNING: Final = "test_a_running_stream_reads_new_tables_and_tells_of_itself"
ARCHIVED: Final = "test_it_has_what_tasks_import"

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
            r"assert self\._shown\(\) ==|do not fit together",
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
    "changes-asks-for-java": breakage(
        "changes are read by a session of Spark Connect",
        "tailrace_spark.source.kafka:read_messages",
        insert("jvm_of(spark)"),
        Red("integration/test_spark_connect.py", "test_changes_are_read_on_a_server", "ended.returncode == 0"),
        needs=Needs.KAFKA,
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
    "nothing-is-observed": breakage(
        "the progress of Spark's query has the stream's own numbers",
        "tailrace_spark.job.stream:Stream.start",
        unwrap("observed(frame)", "frame"),
        Red(STREAM, RUNNING, '"tailrace" in one'),
        needs=Needs.KAFKA,
    ),
    "a-task-for-each-partition": breakage(
        "a small batch has one task for each core",
        "tailrace_spark.job.batch_writer:BatchWriter.collect",
        unwrap("bounded.coalesce(...)", "bounded"),
        Red(STREAM, RUNNING, "assert tasks_of"),
        needs=Needs.KAFKA,
    ),
    "metrics-of-nothing": breakage(
        "/metrics of a running stream tells what it does",
        "tailrace_spark.cli.stream:_follow",
        argument("Stream(...)", "metrics", None),
        Red("integration/test_stream_command.py", "test_the_command_follows_and_ends", "records_total"),
        session="stream",
    ),
    "changes-pass-copies-on": breakage(
        "changes(one_copy_seconds=) leaves copies out",
        "tailrace_spark.source.changes:changes",
        drop("heads = heads if one_copy_seconds is None else one_copy(heads, one_copy_seconds)"),
        Red("integration/test_spark_connect.py", "test_changes_are_read_on_a_server", r"== \[\[1, 7\], \[2, 8\]\]"),
        needs=Needs.KAFKA,
    ),
    "copies-are-forgotten-late": breakage(
        "a copy that comes after the horizon is passed on again",
        "tailrace_spark.source.kafka:one_copy",
        constant("' milliseconds'", " seconds"),
        Red(ONE_COPY, "test_a_copy_that_comes_later_than_that_is_passed_on_again"),
        needs=Needs.KAFKA,
    ),
    "a-newer-checkpoint-is-read-on": breakage(
        "a checkpoint of another format is refused",
        "tailrace_spark.job.checkpoint:_noted",
        argument("require_format(...)", 2, "FORMAT + 1"),
        Red(STREAM, OTHER, "DID NOT RAISE"),
        needs=Needs.KAFKA,
    ),
    "sparks-own-writer-of-checkpoints": breakage(
        "a checkpoint on this machine is written without a process for each step",
        "tailrace_spark.job.checkpoint_files:write_promptly",
        negate("isinstance(files, LocalFiles)"),
        Red(STREAM, OTHER, "FileSystemBasedCheckpointFileManager"),
        needs=Needs.KAFKA,
    ),
    "notes-of-batches-stay": breakage(
        "batches' notes go when Spark's go",
        "tailrace_spark.job.generation_log:BatchLog._write",
        compare("batch >= KEPT_BATCHES", ">"),
        Red(BATCH_LOG, "test_old_notes_go[local]"),
        Red(BATCH_LOG, "test_old_notes_go[hadoop]"),
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
    "a-url-is-no-path": breakage(
        "files of this machine are written without Hadoop, however the checkpoint is named",
        "tailrace_spark.job.checkpoint_files:_local_path",
        unwrap("unquote(urlsplit(folder).path)", "urlsplit(folder).path"),
        Red(BATCH_LOG, "test_a_path_is_this_machines_without_hadoop"),
        needs=Needs.KAFKA,
    ),
    "an-archive-with-tests": breakage(
        "the archive has what tasks import, and no more",
        "tailrace_spark.job.archive:_LEFT_OUT",
        drop("'tests'"),
        Red("unit/spark/job/test_archive.py", ARCHIVED, r'"/tests/" in name'),
    ),
    "an-archive-without-what-is-imported": breakage(
        "the archive has the distributions that ours import",
        "tailrace_spark.job.archive:_ENTRIES",
        together(
            drop("'tailrace_spark.snapshot.stream_rows'"),
            drop("'tailrace_spark.source.changes'"),
            drop("'tailrace_spark.tasks.partition_writer'"),
        ),
        Red("unit/spark/job/test_archive.py", ARCHIVED, "<= packages"),
    ),
    "executors-without-fastavro": breakage(
        "executors whose Python has none of our packages run `changes` with the archive",
        "tailrace_spark.job.archive:_distributions",
        replace("names - _SPARKS_OWN", "names - {'fastavro'} - _SPARKS_OWN"),
        Red("unit/spark/job/test_archive.py", "test_it_has_what_tasks_import"),
    ),
}
