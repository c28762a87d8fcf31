"""One stream: topics to a sink, micro-batch by micro-batch, until it is stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace_common.cli.logs import carried
from tailrace_common.kafka import PartitionEnds, TopicStates
from tailrace_common.settings import Settings
from tailrace_common.topics import GenerationReader, SchemaReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import Internal, KafkaPartition, internal_topic
from tailrace_spark.job.batch_writer import BatchWriter
from tailrace_spark.job.checkpoint import job_of, lock_checkpoint, require_own
from tailrace_spark.job.checkpoint_files import LocalFiles, files_in, write_promptly
from tailrace_spark.job.endings import JAVA_GONE, StoppedError, answer_times, await_interrupt, java_end, reason
from tailrace_spark.job.fitness import require_fit
from tailrace_spark.job.generation_log import BatchGenerations, BatchLog
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import Offsets, PlannedBatch, PlannedOffsets, starting_at
from tailrace_spark.job.progress import Progress, last_progress, observed, read_to, show_status
from tailrace_spark.job.retry import Retry
from tailrace_spark.job.runner import Runner, stream_id
from tailrace_spark.job.session import quiet_stop
from tailrace_spark.job.sharing import Handover
from tailrace_spark.job.sink_check import SinkCheck
from tailrace_spark.job.snapshot_notes import Notes
from tailrace_spark.job.snapshot_run import SnapshotThread, snapshot_run
from tailrace_spark.job.telling import Telling
from tailrace_spark.job.topic_watch import TopicWatch
from tailrace_spark.job.upkeep import KafkaHosts, Sweeper, Upkeep
from tailrace_spark.shaping import masks_of, newest, shape_of
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.snapshot.progress import Snapshots
from tailrace_spark.source.kafka import one_copy, read_messages, reads_table, reads_topic, with_head
from tailrace_spark.source.readings import of_readings
from tailrace_spark.tasks.job import TaskRunner
from tailrace_spark.tasks.partition_writer import TaskSettings, update_reading

log = logging.getLogger("tailrace_spark")

# Spark's triggers of a stream that reads to the end of the topics and ends.
_ENDING: Final = frozenset({"availableNow", "once"})
# Whatever the setting says: we find losses and report them, and Spark passes over none that we do not know of.
_STRICT: Final = {"failOnDataLoss": "true"}


class Stream:
    """Writes every micro-batch of the topics into one sink.

    At least once from Kafka's side: the checkpoint moves after the sink has committed. So the last batch before a crash
    is redelivered, and the sink's merge changes nothing by it.

    The stream blocks on a batch while the sink, Kafka or the generations cannot be reached, or no generation is valid
    yet. It retries with growing pauses. Meanwhile the query's status and the log say why, and later the batch's
    Progress.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        sink: Sink,
        *,
        stop: threading.Event | None = None,
        on_batch: Callable[[Progress], None] | None = None,
        metrics: StreamMetrics | None = None,
        name: str = "tailrace",
        start: Offsets | None = None,
        notes: Notes | None = None,
        claim: str | None = None,
        earlier: Handover | None = None,
        leave: Callable[[], bool] | None = None,
        on_parts: Callable[[PlannedBatch | None, int], None] | None = None,
    ) -> None:
        """`name` is the query's, of which Spark runs one at a time. `start`: where it begins, instead of
        stream.starting_offsets.

        `metrics` know the sink's store by its name without secrets, and by what tells it from others. The checkpoint
        notes both, and is refused to another store.

        `notes` keep how far its snapshots are; by default that is beside the checkpoint.

        `earlier` is what went before this checkpoint. `leave` is asked between batches whether the stream goes on
        elsewhere: then it ends. `on_parts` is BatchWriter's.

        `claim` names whose writes these are, with whatever checkpoint; by default its checkpoint does. A ClaimedSink
        refuses those of an earlier run of the name.

        Raises SettingsError for settings that this sink cannot follow.
        """
        self._spark = spark
        self._settings = settings
        self._stop = stop or threading.Event()
        self._on_batch = on_batch
        self._name = name
        self._source = {} if start is None else starting_at(start)
        self._metrics = metrics or StreamMetrics()
        self._claim = claim
        self._claimed_sink = sink.capabilities.claimed
        self._earlier = earlier or Handover()
        self._leave = leave
        self._left = self._claimed = False
        self._on_parts = on_parts
        self._shape = shape_of(settings.stream, sink)
        self._transactions = sink.capabilities.transactions
        require_fit(settings.stream, sink.capabilities)
        self._writing = threading.Lock()
        self._sink_lock = threading.Lock()
        self._query: StreamingQuery | None = None
        self._lock: ExitStack | None = None
        self._failure: Exception | None = None
        self._files = files_in(spark, f"{settings.stream.checkpoint.rstrip('/')}/tailrace")
        follows = reads_table(spark, settings)
        self._sweeper = Sweeper(sink, self._sink_lock, self._metrics, follows=follows)
        self._retry = Retry(self._metrics, self._stop.wait, lambda words: show_status(self._query, words))
        self._telling = Telling(settings, name, self._metrics.sink_info.location)
        self._connect(sink, notes)

    def _connect(self, sink: Sink, notes: Notes | None) -> None:
        """Make the parts that talk to Kafka, to the checkpoint and to the sink."""
        settings, checkpoint = self._settings, self._settings.stream.checkpoint
        kafka, prefix, stops = settings.kafka.reveal(), settings.topics.prefix, settings.stream.fail_on_data_loss
        self._schemas = SchemaReader(kafka, prefix, ordered=True)
        self._ends = PartitionEnds(kafka)
        planned = self._planned = PlannedOffsets(self._spark, checkpoint)
        self._watch = TopicWatch(
            self._files, planned, TopicStates(kafka), self._metrics, checkpoint,
            stops=stops, wait=self._stop.wait, earlier=self._earlier,
        )  # fmt: skip
        sink = of_readings(sink, self._watch.readings)
        reader = GenerationReader.open(kafka, internal_topic(prefix, Internal.GENERATIONS))
        self._generations = BatchGenerations(reader, BatchLog(self._files))
        self._sink_check = SinkCheck(
            sink.capabilities.progress, self._files, self._metrics.sink_info.location, checkpoint,
            stops=stops, earlier=self._earlier.kept,
        )  # fmt: skip
        self._upkeep: Upkeep | None = None
        if (watermarked := sink.capabilities.watermarks) is not None:
            schemas, hosts = SchemaReader(kafka, prefix, ordered=True), KafkaHosts(kafka, prefix)
            self._upkeep = Upkeep(watermarked, schemas, hosts, reads_topic(self._spark, settings), self._sink_lock)
        shape = self._shape
        runner = Runner(sink, lambda: stream_id(self._files), None if shape is None else shape.definition)
        self._snapshots = snapshot_run(
            self._spark, settings, sink, runner, planned, self._files, self._sink_lock, self._metrics, notes
        )
        self._snapshot_thread = SnapshotThread(self._snapshots)
        self._writer = BatchWriter(
            self._spark,
            settings,
            sink,
            runner,
            self._sink_lock,
            self._generations,
            self._schemas,
            shape=shape,
            watch=self._watch,
            sink_check=self._sink_check,
            tasks=self._task_runner(sink),
            retry=self._retry,
            read_back=self._snapshots.read_back,
            stop=self._stop,
            on_parts=self._on_parts,
        )

    def _task_runner(self, sink: Sink) -> TaskRunner | None:
        """What runs writers on executors, for sinks that have some."""
        stream, shape = self._settings.stream, self._shape
        if not sink.capabilities.executors:
            return None
        updates = update_reading(sink.capabilities, self._settings.kafka.reveal())
        prefix, mixed = self._settings.topics.prefix, stream.one_copy_seconds is not None
        filters = None if shape is None else shape.task_filters
        task_settings = TaskSettings(
            prefix,
            masks_of(stream),
            stream.accept_early,
            mixed=mixed,
            updates=updates,
            filters=filters,
            per_core=stream.tasks_per_core,
        )
        return TaskRunner(self._spark, task_settings)

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start the query; `trigger` is Spark's, by default every [stream] trigger_seconds.

        Raises SettingsError for the checkpoint of another job or of a newer version, and for filters and masks that
        a known table does not fit. Raises FencedError while another stream runs with this checkpoint, and DataLossError
        for a sink that lacks what the checkpoint counts as written.
        """
        stream, copies = self._settings.stream, self._settings.stream.one_copy_seconds
        if not self._claimed:
            self._claim_checkpoint()
        committed = self._planned.committed()
        with self._sink_lock:
            self._sink_check.begin(*committed)
        if self._upkeep is not None:
            self._upkeep.run(self._read_to)
        bounds = answer_times(self._retry.patience, stream.kafka.reveal())
        options = {**_STRICT, **bounds, **self._telling.options, **self._source}
        frame = with_head(read_messages(self._spark, self._settings, options=options, without=self._watch.stopped))
        frame = frame if copies is None else one_copy(frame, copies)
        writer = observed(frame).writeStream.queryName(self._name).foreachBatch(carried(self._take))
        writer = writer.option("checkpointLocation", stream.checkpoint)
        self._query = writer.trigger(**(trigger or {"processingTime": f"{stream.trigger_seconds} seconds"})).start()
        self._metrics.watch(partial(last_progress, self._query), self._ends.of)
        return self._query

    def _claim_checkpoint(self) -> None:
        self._check_shape()
        checkpoint = self._settings.stream.checkpoint
        if self._lock is None and isinstance(self._files, LocalFiles):
            self._lock = lock_checkpoint(self._files.folder, checkpoint, now=time.time())
        job = job_of(self._settings, self._metrics.sink_info, transactions=self._transactions)
        require_own(self._files, checkpoint, job)
        write_promptly(self._spark, self._files)
        if self._claimed_sink is not None:
            self._claimed_sink.claim(self._claim or stream_id(self._files))
        self._claimed = True

    def _check_shape(self) -> None:
        if self._shape is None:
            return
        try:
            self._schemas.refresh()
        except ServiceError as error:
            log.warning(
                "could not read the schemas; filters and masks are checked when changes of a table arrive: %s", error
            )
        reads = reads_topic(self._spark, self._settings)
        self._shape.begin(newest(entry for entry in self._schemas.values() if reads(entry.topic)))

    @property
    def snapshots(self) -> Snapshots:
        """How far the stream's snapshots are, which `run` reads."""
        return self._snapshots.value

    def run(self, **trigger: Any) -> None:
        """Run until told to stop, or, with a trigger such as availableNow, until done.

        Snapshots are read beside the query. One that ends by itself is followed by them, and then by another query for
        what was written meanwhile. With stream.snapshot = "only" there is no query.
        Raises ServiceError. Raises DataLossError where Kafka has lost records, once nothing else is left to read.
        Raises it too where the sink lacks what its checkpoint counts as written.
        """
        try:
            with self._telling.running(self._schemas, self._shape, self._spark, trigger.keys() & _ENDING):
                self._run(**trigger)
        except JAVA_GONE as error:
            raise ServiceError(f"the stream ended: {java_end() or reason(error)}") from error
        finally:
            self.close()

    def follow(self) -> None:
        """As `run`, for one query without snapshots. What ends it is raised, losses too."""
        try:
            self._await(self.start(), beside=False)
        except StreamingQueryException as error:
            if not self._stop.is_set():
                raise self._failure or error from error
        finally:
            self.close()

    def _run(self, **trigger: Any) -> None:
        ends = bool(trigger.keys() & _ENDING)
        self._retry.patience = self._snapshots.patience = self._settings.stream.once_wait_seconds if ends else None
        self._claim_checkpoint()
        self._snapshots.decide(self._settings.stream)
        if self._settings.stream.snapshot == "only":
            self._snapshots.run(self._stop)
            return
        self._watch.at_start(ends=ends)
        while True:
            query = self.start(**trigger)
            try:
                self._await(query, beside=not ends)
            except StreamingQueryException as error:
                if self._over:
                    return
                failure, self._failure = self._failure or error, None
                self._watch.recover(failure, error, ends=ends)
            else:
                if not ends or self._over or not self._snapshots.outstanding:
                    break
                self._snapshots.run(self._stop)  # then what was written meanwhile
        if not self._over:  # else it was stopped, and is not done
            self._watch.require_none_stopped()

    def _await(self, query: StreamingQuery, *, beside: bool) -> None:
        """Wait for the query's end, with snapshots beside it or without; what they raise ends the query too."""
        try:
            self._beside(query, snapshots=beside)
        except BaseException:
            self._stop.set()  # a batch that waits for the sink would wait on
            with suppress(StreamingQueryException):
                self._end(query)
            raise
        self._end(query)

    def _beside(self, query: StreamingQuery, *, snapshots: bool) -> None:
        while query.isActive and not self._stop.wait(0.2):
            self._metrics.alive()
            if self._leaves():
                return
            if snapshots:
                self._snapshot_thread.look()
            self._sweeper.run()
            if self._upkeep is not None:
                self._upkeep.run(self._read_to)
        if self._upkeep is not None and not self._stop.is_set():
            self._upkeep.run(self._read_to, now=True)  # the last batch of all

    def _leaves(self) -> bool:
        """Whether it goes on elsewhere. With a topic stopped or a snapshot to read it stays."""
        if self._leave is None or self._watch.stopped or self._snapshots.outstanding:
            return False
        if self._writing.acquire(blocking=False):
            try:
                self._left = self._leave()
            finally:
                self._writing.release()
        return self._left

    @property
    def _over(self) -> bool:
        return self._left or self._stop.is_set()

    @property
    def handover(self) -> Handover:
        """What a stream has to know that goes on from here with another checkpoint."""
        return Handover(self._watch.ids, self._sink_check.kept, dict(self._watch.readings))

    def _end(self, query: StreamingQuery) -> None:
        with self._writing, quiet_stop(self._spark):  # Spark would interrupt a batch that is being written
            query.stop()
            query.awaitTermination()

    def _read_to(self) -> Mapping[KafkaPartition, int] | None:
        """The offset that finished batches have read each partition to; None where that is not known."""
        progress = None if self._query is None else last_progress(self._query)
        return None if progress is None else read_to(progress)

    def close(self) -> None:
        """Leave Kafka, Cassandra and the checkpoint; the sink stays the caller's."""
        self._snapshot_thread.join()
        self._snapshots.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self._schemas.close()
        self._generations.close()
        self._telling.close()
        if self._upkeep is not None:
            self._upkeep.close()

    def _take(self, frame: DataFrame, batch: int) -> None:
        written = False
        if self._writing.acquire(blocking=False):  # else `run` has it, and stops the query
            try:
                written = not self._over and self._written(frame, batch)
            finally:
                self._writing.release()
        if not written:
            await_interrupt(self._spark)

    def _written(self, frame: DataFrame, batch: int) -> bool:
        """Whether the batch was written before the stream was stopped."""
        try:
            self._report(self._writer.write(frame, batch))
        except StoppedError:
            return False
        except Exception as error:
            self._failure = error  # of which Spark hands on the text alone
            raise
        return True

    def _report(self, progress: Progress) -> None:
        self._telling.wrote(progress)
        if progress.records:
            log.info("%s", progress)
        self._metrics.wrote(progress)
        if self._on_batch is not None:
            self._on_batch(progress)
