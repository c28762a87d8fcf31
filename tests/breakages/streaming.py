"""Breakages of the stream job: its checkpoint, its restarts, what it reads while it runs, what it tells of itself."""

from __future__ import annotations

from typing import Final

from tests.breakages.breakage import ASSERTED, Breakage, Needs, Red

PIPELINE: Final = "spark/tailrace_spark/job/stream.py"
RECORDS: Final = "spark/tailrace_spark/job/batch_records.py"
LOSSES: Final = "spark/tailrace_spark/job/loss_policy.py"
CHECKPOINT: Final = "spark/tailrace_spark/job/checkpoint.py"
BATCHES: Final = "spark/tailrace_spark/job/generation_log.py"
FILES: Final = "spark/tailrace_spark/job/checkpoint_files.py"
ARCHIVE: Final = "spark/tailrace_spark/job/archive.py"
DEDUPE: Final = "spark/tailrace_spark/source/dedupe.py"

STREAM: Final = "integration/test_stream.py"
LOST: Final = "integration/faults/test_lost_topics.py"
RESTORED: Final = "integration/faults/test_restored_sinks.py"
ONE_COPY: Final = "integration/test_stream_one_copy.py"
BATCH_LOG: Final = "integration/test_batch_log.py"
OLDER: Final = "test_an_older_formats_checkpoint_is_read_on_and_a_newer_ones_is_refused"
RUNNING: Final = "test_a_running_stream_reads_new_tables_and_tells_of_itself"
ARCHIVED: Final = "test_it_has_what_tasks_import"

BREAKAGES: Final = (
    Breakage(
        name="a-broker-that-comes-back-is-looked-for-in-ten-minutes",
        promise="a stream goes on soon after its broker restarted",
        file="spark/tailrace_spark/source/kafka.py",
        old='{"kafka.fetch.max.wait.ms": "1"}',
        new=(
            '{"kafka.fetch.max.wait.ms": "1", "kafka.reconnect.backoff.ms": "600000",'
            ' "kafka.reconnect.backoff.max.ms": "600000"}'
        ),
        needs=Needs.KAFKA,
        reds=(
            Red(
                "integration/faults/test_broker_restart.py",
                "test_a_stream_goes_on_after_its_broker_restarted",
                ASSERTED,
            ),
        ),
    ),
    Breakage(
        name="a-noted-batch-is-taken-for-written",
        promise="killed at any point, the stream goes on, and the sink equals the source",
        file=PIPELINE,
        old="            self._report(self._writer.write(frame, batch))\n        except StoppedError:\n",
        new=(
            '            if self._files.read(f"{batch}.json") is None:\n'
            "                self._report(self._writer.write(frame, batch))\n        except StoppedError:\n"
        ),
        needs=Needs.KAFKA,
        session="stream",
        reds=(
            Red(
                "integration/test_stream_kills.py",
                "test_a_killed_stream_goes_on[sqlite]",
                r"assert self\._shown\(\) ==|do not fit together",
            ),
        ),
    ),
    Breakage(
        name="a-sink-is-taken-at-the-checkpoints-word",
        promise="a sink that was deleted, or restored from an older backup, stops the stream",
        file="spark/tailrace_spark/batch/sink_progress.py",
        old="    if stored is None:\n",
        new="    if stored is None or stored.batch < committed.batch:\n        return None\n    if stored is None:\n",
        needs=Needs.KAFKA,
        reds=(
            Red(RESTORED, "test_a_deleted_database_stops_the_stream_where_its_checkpoint_stays", "DID NOT RAISE"),
            Red(
                RESTORED,
                "test_a_database_restored_from_an_older_backup_stops_the_stream_until_losses_stop_nothing",
                "DID NOT RAISE",
            ),
            Red(RESTORED, "test_a_checkpoint_of_an_earlier_version_goes_on", "DID NOT RAISE"),
        ),
    ),
    Breakage(
        name="two-streams-share-a-checkpoint",
        promise="a second stream with one checkpoint is refused",
        file="spark/tailrace_spark/job/checkpoint_lock.py",
        old="fcntl.LOCK_EX | fcntl.LOCK_NB",
        new="fcntl.LOCK_SH | fcntl.LOCK_NB",
        needs=Needs.KAFKA,
        reds=(
            Red(
                "integration/faults/test_checkpoints.py",
                "test_a_second_stream_with_one_checkpoint_is_refused_and_the_first_goes_on",
                r"assert isinstance\(refused\.value, FencedError\)",
            ),
        ),
    ),
    Breakage(
        name="a-deleted-file-is-written-on",
        promise="a SQLite file that is deleted under a running stream stops it",
        file="spark/tailrace_spark/sinks/state_store/engine.py",
        old='        if record.info["file"] != _identity(file):\n',
        new="        if False:\n",
        needs=Needs.KAFKA,
        reds=(Red(RESTORED, "test_a_database_deleted_under_a_running_stream_stops_it", ASSERTED),),
    ),
    Breakage(
        name="a-deleted-topic-stops-all",
        promise="a topic that is deleted stops its own table alone",
        file=LOSSES,
        old="        if not losses:\n            raise ServiceError",
        new="        if losses:\n            raise ServiceError",
        needs=Needs.KAFKA,
        reds=(Red(LOST, "test_a_deleted_topic_stops_its_table_alone", "the stream ended: "),),
    ),
    Breakage(
        name="a-topic-is-its-name",
        promise="a topic that was created again is read from its beginning",
        file="spark/tailrace_spark/job/topic_watch.py",
        old='        self._ids: dict[str, str] = {**(ids or {}), **note.get("ids", {})}\n',
        new="        self._ids: dict[str, str] = {}\n",
        needs=Needs.KAFKA,
        reds=(Red(LOST, "test_a_topic_created_again_is_read_from_its_beginning_where_losses_stop_nothing", ASSERTED),),
    ),
    Breakage(
        name="read-on-one-record-later",
        promise="what is left of a topic that lost records is read, and the offsets of its loss are reported",
        file="spark/tailrace_spark/job/losses.py",
        old="            spans.append(Span(partition, first, start))\n",
        new="            spans.append(Span(partition, first, start + 1))\n",
        needs=Needs.KAFKA,
        reds=(Red(LOST, "test_records_deleted_before_they_were_read_are_told_by_their_offsets[False]", "not read: "),),
    ),
    Breakage(
        name="javas-end-is-a-traceback",
        promise="the end of Spark's Java is reported in one line",
        file=PIPELINE,
        old="        except JAVA_GONE as error:\n",
        new="        except ZeroDivisionError as error:\n",
        needs=Needs.KAFKA,
        session="stream",
        reds=(Red(LOST, "test_a_java_that_died_is_told_in_a_line", '"Traceback" not in words'),),
    ),
    Breakage(
        name="windows-of-all-copies",
        promise="windows of write times count each change once",
        file=DEDUPE,
        old="        .withWatermark(EVENT_TIME, delay)\n        .dropDuplicatesWithinWatermark([_IDENTITY])\n",
        new="        .withWatermark(EVENT_TIME, delay)\n",
        needs=Needs.KAFKA,
        reds=(Red(ONE_COPY, "test_windows_of_write_times_over_one_copy_of_three", r"\[\(60, 2\), \(120, 2\)"),),
    ),
    Breakage(
        name="a-batch-is-never-cut",
        promise="a micro-batch is written in parts of bounded bytes",
        file="spark/tailrace_spark/job/parts.py",
        old='        end = max(begin + 1, int(np.searchsorted(ends, bytes_before + limit, side="right")))\n',
        new="        end = len(ends)\n",
        needs=Needs.KAFKA,
        reds=(
            Red(
                "integration/test_stream_parts.py",
                "test_a_batch_too_large_for_memory_is_written_in_parts_and_comes_again_in_the_same[None-OrderedParts]",
                "max\\(second.sizes\\)|DID NOT RAISE",
            ),
        ),
    ),
    Breakage(
        name="only-todays-topics",
        promise="a topic that appears is read without a restart",
        file="spark/tailrace_spark/source/kafka.py",
        old='        "subscribePattern": without_topics(_pattern(settings, topics), without),\n',
        new=(
            '        "subscribe": ",".join(\n'
            "            name\n"
            '            for name in __import__("confluent_kafka.admin")\n'
            "            .admin.AdminClient(settings.kafka.reveal()).list_topics(timeout=10).topics\n"
            '            if name.startswith(f"{settings.topics.prefix}.") and name.count(".") > 1\n'
            "        ),\n"
        ),
        needs=Needs.KAFKA,
        reds=(Red(STREAM, RUNNING, "assert time.monotonic"),),
    ),
    Breakage(
        name="nothing-is-observed",
        promise="the progress of Spark's query has the stream's own numbers",
        file=PIPELINE,
        old="        writer = observed(frame).writeStream",
        new="        writer = frame.writeStream",
        needs=Needs.KAFKA,
        reds=(Red(STREAM, RUNNING, '"tailrace" in one'),),
    ),
    Breakage(
        name="a-task-for-each-partition",
        promise="a small batch has one task for each core",
        file=RECORDS,
        old="        few = bounded.coalesce(self._spark.sparkContext.defaultParallelism)\n",
        new="        few = bounded\n",
        needs=Needs.KAFKA,
        reds=(Red(STREAM, RUNNING, "assert tasks_of"),),
    ),
    Breakage(
        name="metrics-of-nothing",
        promise="/metrics of a running stream tells what it does",
        file="spark/tailrace_spark/cli/stream.py",
        old="target, stop=stop, metrics=metrics, location=about.location,",
        new="target, stop=stop, location=about.location,",
        needs=Needs.KAFKA,
        session="stream",
        reds=(Red("integration/test_stream_command.py", "test_the_command_follows_and_ends", "records_total"),),
    ),
    Breakage(
        name="changes-pass-copies-on",
        promise="changes(one_copy_seconds=) leaves copies out",
        file="spark/tailrace_spark/source/changes.py",
        old="    heads = heads if one_copy_seconds is None else one_copy(heads, one_copy_seconds)\n",
        new="",
        needs=Needs.KAFKA,
        reds=(Red(ONE_COPY, "test_changes_leave_out_copies_too", ASSERTED),),
    ),
    Breakage(
        name="copies-are-forgotten-late",
        promise="a copy that comes after the horizon is passed on again",
        file=DEDUPE,
        old='        .withWatermark(_TAKEN, f"{round(seconds * 1000)} milliseconds")\n',
        new='        .withWatermark(_TAKEN, f"{round(seconds * 1000)} seconds")\n',
        needs=Needs.KAFKA,
        reds=(Red(ONE_COPY, "test_a_copy_that_comes_later_than_that_is_passed_on_again", ASSERTED),),
    ),
    Breakage(
        name="a-newer-checkpoint-is-read-on",
        promise="a checkpoint of a newer format is refused",
        file=CHECKPOINT,
        old='require_format(subject, note["format"], FORMAT, ',
        new='require_format(subject, note["format"], FORMAT + 1, ',
        needs=Needs.KAFKA,
        reds=(Red(STREAM, OLDER, "DID NOT RAISE"),),
    ),
    Breakage(
        name="sparks-own-writer-of-checkpoints",
        promise="a checkpoint on this machine is written without a process for each step",
        file=FILES,
        old="    if isinstance(files, LocalFiles) and spark",
        new="    if not isinstance(files, LocalFiles) and spark",
        needs=Needs.KAFKA,
        reds=(Red(STREAM, OLDER, "FileSystemBasedCheckpointFileManager"),),
    ),
    Breakage(
        name="notes-of-batches-stay",
        promise="batches' notes go when Spark's go",
        file=BATCHES,
        old="        if batch >= KEPT_BATCHES:\n",
        new="        if batch > KEPT_BATCHES:\n",
        needs=Needs.KAFKA,
        reds=(
            Red(BATCH_LOG, "test_old_notes_go[local]", ASSERTED),
            Red(BATCH_LOG, "test_old_notes_go[hadoop]", ASSERTED),
        ),
    ),
    Breakage(
        name="a-note-is-written-anew",
        promise="a batch that comes again is assigned as before",
        file=BATCHES,
        old="            if remaining:  # what",
        new="            if len(remaining) == len(published):  # what",
        needs=Needs.KAFKA,
        reds=(
            Red(BATCH_LOG, "test_what_was_known_then_is_used_again[local]", ASSERTED),
            Red(BATCH_LOG, "test_what_was_known_then_is_used_again[hadoop]", ASSERTED),
        ),
    ),
    Breakage(
        name="a-url-is-no-path",
        promise="files of this machine are written without Hadoop, however the checkpoint is named",
        file=FILES,
        old="    return LocalFiles(Path(unquote(local))) if files.local else files\n",
        new="    return LocalFiles(Path(local)) if files.local else files\n",
        needs=Needs.KAFKA,
        reds=(Red(BATCH_LOG, "test_a_path_is_this_machines_without_hadoop", ASSERTED),),
    ),
    Breakage(
        name="an-archive-with-tests",
        promise="the archive has what tasks import, and no more",
        file=ARCHIVE,
        old='frozenset({"__pycache__", "tests", "include"})',
        new='frozenset({"__pycache__", "include"})',
        needs=Needs.NOTHING,
        reds=(Red("unit/spark/job/test_archive.py", ARCHIVED, r'"/tests/" in name'),),
    ),
    Breakage(
        name="an-archive-without-what-is-imported",
        promise="the archive has the distributions that ours import",
        file=ARCHIVE,
        old='    "tailrace_spark.source.changes",\n    "tailrace_spark.tasks.partition_writer",\n',
        new="",
        needs=Needs.NOTHING,
        reds=(Red("unit/spark/job/test_archive.py", ARCHIVED, "<= packages"),),
    ),
    Breakage(
        name="executors-without-fastavro",
        promise="executors whose Python has none of our packages run `changes` with the archive",
        file=ARCHIVE,
        old="    return {name: distribution(name) for name in names - _SPARKS_OWN",
        new='    return {name: distribution(name) for name in names - {"fastavro"} - _SPARKS_OWN',
        needs=Needs.KAFKA,
        session="stream",
        reds=(
            Red(
                "integration/test_spark_cluster.py",
                "test_executors_need_nothing_of_ours_but_the_archive",
                "No module named 'fastavro'",
            ),
        ),
    ),
)
