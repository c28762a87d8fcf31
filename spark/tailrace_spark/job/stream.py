"""One stream: topics to a sink, micro-batch by micro-batch, until it is told to stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

import pyarrow.compute as pc
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace_common.kafka import PartitionEnds, TopicStates
from tailrace_common.settings import Settings
from tailrace_common.topics.generations import GenerationReader
from tailrace_common.topics.schemas import SchemaReader
from tailrace_schemas.errors import DataLossError, ServiceError, SettingsError
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.job.checkpoint import job_of, require_own
from tailrace_spark.job.checkpoint_files import LocalFiles, files_in, write_promptly
from tailrace_spark.job.checkpoint_lock import CheckpointLock, lock_checkpoint
from tailrace_spark.job.counts import ends_of, marks_of, progress_of
from tailrace_spark.job.endings import JAVA_GONE, StoppedError, await_interrupt, java_end, quiet, reason
from tailrace_spark.job.generation_log import BatchLog
from tailrace_spark.job.hosts import KafkaHosts
from tailrace_spark.job.lag import read_to
from tailrace_spark.job.losses import Loss
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import Plan, PlannedOffsets
from tailrace_spark.job.parts import part_bytes, parts_of, with_values, without_large
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.query_status import PROCESSING, last_progress, observed, show_status
from tailrace_spark.job.sink_check import SinkCheck
from tailrace_spark.job.topic_watch import TopicWatch
from tailrace_spark.job.upkeep import Upkeep
from tailrace_spark.shaping import newest, shape_of
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.source.decode import pieces
from tailrace_spark.source.dedupe import one_copy
from tailrace_spark.source.kafka import read_messages, read_some, reads_topic, with_head
from tailrace_spark.source.table_updates import KafkaPartition, WholeUpdates, with_streams
from tailrace_spark.streams.assign import assigned_here
from tailrace_spark.streams.lookup import StreamTable

log = logging.getLogger("tailrace_spark")

T = TypeVar("T")

_FIRST_WAIT_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 30.0
_LONGEST_KAFKA_WAIT_SECONDS: Final = 2.0
_SWEEP_SECONDS: Final = 2.0
_REST_RECORDS: Final = 2_000
# Settings of Java's client; the second must not be less than the first.
_ANSWER_TIMES: Final = ("request.timeout.ms", "default.api.timeout.ms")
_LEAST_ANSWER_MS: Final = 5_000
# Spark's triggers of a stream that reads what is there and ends.
_ENDING: Final = frozenset({"availableNow", "once"})
# Whatever the setting says: what is lost is found and told by us, and nothing that we do not know of is passed over.
_STRICT: Final = {"failOnDataLoss": "true"}


class Stream:
    """Writes every micro-batch of the topics into one sink.

    At least once from Kafka's side: the checkpoint moves after the sink has committed, so the last batch before a
    crash comes again, and the sink's merge changes nothing by it. A batch waits while the sink, Kafka or the
    generations cannot be reached, or no generation is valid yet, and tries again with growing pauses; nothing else
    waits behind it but this stream. Meanwhile the message of the query's status says for what, as do the log and,
    afterwards, the batch's Progress.
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
        location: str = "",
        store: str = "",
    ) -> None:
        """`location` names the sink's store without secrets, and `store` is what tells it from others, where that says
        more (checkpoint.store_of): the checkpoint notes both, and is refused to another.

        Raises SettingsError for settings that this sink cannot follow.
        """
        self._spark = spark
        self._settings = settings
        self._sink = sink
        self._stop = stop or threading.Event()
        self._on_batch = on_batch
        self._location = location
        self._store = store
        self._metrics = metrics or StreamMetrics()
        self._shape = shape_of(settings.stream, sink, spark)
        if self._shape is not None and sink.capabilities.whole_updates is not None:
            named = "stream.where" if settings.stream.where else "stream.columns"
            raise SettingsError(f"{named} is not for log tables: they repeat each update as it was written")
        self._writing = threading.Lock()
        self._sink_used = threading.Lock()
        self._swept = time.monotonic()
        kafka, prefix = settings.kafka.reveal(), settings.topics.prefix
        self._query: StreamingQuery | None = None
        self._table: tuple[tuple[UUID, ...], StreamTable] | None = None
        self._files = files_in(spark, f"{settings.stream.checkpoint.rstrip('/')}/tailrace")
        self._batches = BatchLog(self._files)
        self._planned = PlannedOffsets(spark, settings.stream.checkpoint)
        self._part_bytes = part_bytes(spark, settings)
        stops, states = settings.stream.fail_on_data_loss, TopicStates(kafka)
        self._watch = TopicWatch(self._files, self._planned, states, stops=stops, wait=self._stop.wait)
        self._sink_check: SinkCheck | None = None
        if (kept := sink.capabilities.progress) is not None:
            own = settings.stream.checkpoint
            self._sink_check = SinkCheck(kept, self._files, self._planned, location, own, stops=stops)
        self._lock: CheckpointLock | None = None
        self._failure: Exception | None = None
        self._form_warned = False
        self._patience: float | None = None
        self._schemas = SchemaReader(kafka, prefix)
        self._ends = PartitionEnds(kafka)
        self._generations = GenerationReader.open(kafka, internal_topic(prefix, Internal.GENERATIONS))
        self._upkeep: Upkeep | None = None
        if (announced := sink.capabilities.announcements) is not None:
            schemas, hosts = SchemaReader(kafka, prefix), KafkaHosts(kafka, prefix)
            self._upkeep = Upkeep(announced, schemas, hosts, reads_topic(spark, settings), self._sink_used)

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start the query; `trigger` is Spark's, by default every [stream] trigger_seconds.

        Raises SettingsError for the checkpoint of another job, or of a newer version's, and for filters and masks that
        a table which is known does not fit; FencedError while another stream runs with this checkpoint; DataLossError
        for a sink that lacks what the checkpoint counts as written.
        """
        self._check_shape()
        stream, copies = self._settings.stream, self._settings.stream.one_copy_seconds
        if self._lock is None and isinstance(self._files, LocalFiles):
            self._lock = lock_checkpoint(self._files.folder, stream.checkpoint, now=time.time())
        require_own(self._files, stream.checkpoint, job_of(self._settings, self._location, self._store))
        write_promptly(self._spark, self._files)
        if self._sink_check is not None:
            with self._sink_used:
                self._sink_check.begin()
        if self._upkeep is not None:
            self._upkeep.run(self._read_to)
        options = {**_STRICT, **self._bounds()}
        frame = with_head(read_messages(self._spark, self._settings, options=options, without=self._watch.stopped))
        frame = frame if copies is None else one_copy(frame, copies)
        writer = observed(frame).writeStream.queryName("tailrace").foreachBatch(self._take)
        writer = writer.option("checkpointLocation", stream.checkpoint)
        self._query = writer.trigger(**(trigger or {"processingTime": f"{stream.trigger_seconds} seconds"})).start()
        self._metrics.watch(partial(last_progress, self._query), self._ends.of)
        return self._query

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
        self._shape.check(newest(entry for entry in self._schemas.values() if reads(entry.topic)))

    def run(self, **trigger: Any) -> None:
        """Run until told to stop, or, with a trigger such as availableNow, until done.

        Raises ServiceError, and DataLossError: where Kafka has lost records, when nothing else is left to read; where
        the sink has lost what its checkpoint counts as written.
        """
        try:
            self._run(**trigger)
        except JAVA_GONE as error:
            raise ServiceError(f"the stream ended: {java_end() or reason(error)}") from error
        finally:
            self.close()

    def _run(self, **trigger: Any) -> None:
        ends = bool(trigger.keys() & _ENDING)
        self._patience = self._settings.stream.once_wait_seconds if ends else None
        self._settle(ends=ends)
        while True:
            query = self.start(**trigger)
            try:
                self._await(query)
            except StreamingQueryException as error:
                if self._stop.is_set():
                    return
                self._recover(error, ends=ends)
            else:
                break
        if self._watch.stopped and not self._stop.is_set():  # else it was told to stop, and is not done
            raise DataLossError(self._watch.words("all others were read to their end"))

    def _bounds(self) -> dict[str, str]:
        """How long Spark waits for Kafka where the stream ends by itself: it asks three times more."""
        own = self._settings.stream.kafka.reveal()
        if self._patience is None or not own.keys().isdisjoint(_ANSWER_TIMES):
            return {}
        each = str(max(_LEAST_ANSWER_MS, int(self._patience * 250)))
        return {f"kafka.{name}": each for name in _ANSWER_TIMES}

    def _await(self, query: StreamingQuery) -> None:
        while query.isActive and not self._stop.wait(0.2):
            self._metrics.alive()
            self._sweep()
            if self._upkeep is not None:
                self._upkeep.run(self._read_to)
        if self._upkeep is not None and not self._stop.is_set():
            self._upkeep.run(self._read_to, now=True)  # the last batch of all
        with self._writing, quiet(self._spark):  # Spark would interrupt a batch that is being written
            query.stop()
            query.awaitTermination()

    def _settle(self, *, ends: bool) -> None:
        """At the start: what Kafka has lost while no stream ran. Where it does not answer, Spark finds out."""
        try:
            losses = self._watch.settle()
        except ServiceError as error:
            log.warning("could not check yet whether Kafka still has all unread records; checking again: %s", error)
        except ValueError as error:
            self._unknown_form(error)
        else:
            self._report(losses, ends=ends)

    def _recover(self, error: StreamingQueryException, *, ends: bool) -> None:
        """Go past what Kafka has lost, where that ended the query. Raises ServiceError where it did not."""
        failure, self._failure = self._failure or error, None
        if isinstance(failure, DataLossError):
            raise failure from error
        try:
            losses = self._watch.settle()
        except (ServiceError, ValueError) as trouble:
            raise ServiceError(f"the stream ended: {reason(failure)}; {trouble}") from error
        if not losses:
            raise ServiceError(f"the stream ended: {reason(failure)}") from error
        self._report(losses, ends=ends)

    def _report(self, losses: list[Loss], *, ends: bool) -> None:
        """Say once what is lost, and what follows: here, or where the stream `ends` by itself, in its last words."""
        self._metrics.lost(losses, self._watch.stopped)
        if self._watch.reads_nothing:
            raise DataLossError(self._watch.words("no other table is left to read, and the stream ends"))
        if self._watch.stopped and not ends:
            log.error("%s", self._watch.words("all others go on"))
        if not self._settings.stream.fail_on_data_loss:
            for loss in losses:
                log.error("%s. The stream goes on with what is left (stream.fail_on_data_loss = false)", loss)

    def _plan(self, batch: int) -> Plan | None:
        """What Spark has planned; None of a checkpoint whose form is not known."""
        try:
            return self._planned.plan(batch)
        except ValueError as error:
            self._unknown_form(error)
            return None

    def _unknown_form(self, error: ValueError) -> None:
        if not self._form_warned:
            log.warning(
                "stream.checkpoint %s: Spark's files in it have a form that this version does not know (%s). Records "
                "are counted by Spark, and records that Kafka loses stop all tables, not their own alone",
                self._settings.stream.checkpoint,
                error,
            )
        self._form_warned = True

    def _read_to(self) -> Mapping[KafkaPartition, int] | None:
        """Up to where the batches that are done have read each partition; None where that is not known."""
        progress = None if self._query is None else last_progress(self._query)
        return None if progress is None else read_to(progress)

    def _sweep(self) -> None:
        """Let a sink bring up to date what time alone changes; not while a batch is being written."""
        sweeping = self._sink.capabilities.sweeping
        if sweeping is None or time.monotonic() < self._swept + _SWEEP_SECONDS:
            return
        if not self._sink_used.acquire(blocking=False):
            return
        try:
            self._metrics.swept(sweeping.sweep())
        except ServiceError as error:
            log.warning("could not remove expired rows from the sink; will retry: %s", error)
        finally:
            self._swept = time.monotonic()
            self._sink_used.release()

    def close(self) -> None:
        """Leave Kafka and the checkpoint; the sink stays the caller's."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self._schemas.close()
        self._generations.close()
        if self._upkeep is not None:
            self._upkeep.close()

    def _take(self, frame: DataFrame, batch: int) -> None:
        written = False
        if self._writing.acquire(blocking=False):  # else `run` has it, and stops the query
            try:
                written = not self._stop.is_set() and self._written(frame, batch)
            finally:
                self._writing.release()
        if not written:
            await_interrupt(self._spark)

    def _written(self, frame: DataFrame, batch: int) -> bool:
        """Whether the batch was written before the stream was told to stop."""
        try:
            self._write(frame, batch)
        except StoppedError:
            return False
        except Exception as error:
            self._failure = error  # of which Spark hands on the text alone
            raise
        return True

    def _write(self, frame: DataFrame, batch: int) -> None:
        began = time.monotonic()
        held = _Held(batch)
        table = self._hold(held, "generations", lambda: self._stream_table(batch))
        plan = self._plan(batch)
        if plan is not None:
            self._hold(held, "topics", lambda: self._watch.check(plan))
        if (check := self._sink_check) is not None:
            self._hold(held, "sink", lambda: self._alone(lambda: check.before(batch, plan.start if plan else {})))
        records = self._assigned(frame, table, frame.count() if plan is None else plan.size)
        if records.num_rows:  # decoding reads `.schemas` on for an id that it lacks, not for one announced again
            self._hold(held, "schemas", self._schemas.refresh)
        summary = self._in_parts(held, records, table)
        if check is not None:
            self._hold(held, "sink", lambda: self._alone(lambda: check.behind(batch, plan.end if plan else {})))
        progress = Progress(
            batch=batch,
            records=records.num_rows,
            summary=summary,
            marks=marks_of(records.column("marks")),
            tables=progress_of(records, time.time()),
            left_out={} if self._shape is None else dict(self._shape.left_out),
            held_seconds=held.seconds,
            held_for=tuple(held.reasons),
            seconds=time.monotonic() - began,
        )
        if records.num_rows:
            log.info("%s", progress)
        self._metrics.wrote(progress)
        if self._on_batch is not None:
            self._on_batch(progress)

    def _in_parts(self, held: _Held, records: Any, table: StreamTable) -> Summary:
        """Write the records, those that are too many bytes for the driver part by part, in the order of their places.

        Each part is a batch of its own for the sink: all of it is taken in, and a part that is delivered again, after
        a crash behind it, changes nothing more.
        """
        summary, parts = Summary(), parts_of(records, self._part_bytes)
        if len(parts) > 1:
            size, most = (number / 2**20 for number in (pc.sum(records.column("size")).as_py(), self._part_bytes))
            log.info(
                "batch %d (%.0f MiB) is written in %d parts of at most %.0f MiB", held.batch, size, len(parts), most
            )
        for number, part in enumerate(parts):
            if number and self._stop.is_set():
                raise StoppedError("between two parts of a batch")
            pieces_of = self._pieces(with_values(self._spark, self._settings, part, self._part_bytes), table)
            summary += self._hold(held, "sink", partial(self._into_sink, pieces_of))
        return summary

    def _into_sink(self, pieces_of: Callable[[], Iterable[Piece]]) -> Summary:
        return self._alone(lambda: self._sink.write(pieces_of()))

    def _alone(self, use_sink: Callable[[], T]) -> T:
        """What the call gives, made while no other thread uses the sink."""
        with self._sink_used:
            return use_sink()

    def _pieces(self, records: Any, table: StreamTable) -> Callable[[], Iterable[Piece]]:
        """What gives the pieces of a batch that the sink wants, as often as it is called."""
        capabilities, early = self._sink.capabilities, self._settings.stream.accept_early
        place = [(name, "ascending") for name in ("topic", "partition", "offset")]
        if (updates := capabilities.whole_updates) is None:
            wanted = records.sort_by(place) if capabilities.ordered else records
            return partial(self._shaped, partial(pieces, wanted, self._schemas, early=early))
        own = records.sort_by(place)

        def decoded(some: Any) -> Iterator[Piece]:
            for piece in pieces(some, self._schemas, early=early):
                yield with_streams(piece, table, updates.write_times)

        def read_on(partition: KafkaPartition, offset: int) -> tuple[Iterable[Piece], int | None]:
            heads = with_head(read_some(self._spark, self._settings, partition, offset, _REST_RECORDS))
            rest = self._assigned(heads, table, _REST_RECORDS).sort_by(place)
            some = with_values(self._spark, self._settings, parts_of(rest, self._part_bytes)[0], self._part_bytes)
            more = rest.num_rows == _REST_RECORDS or some.num_rows < rest.num_rows
            return decoded(some), some.column("offset")[-1].as_py() + 1 if more else None

        whole = WholeUpdates(partial(decoded, own), ends_of(own), read_on)
        return lambda: whole

    def _shaped(self, found: Callable[[], Iterable[Piece]]) -> Iterable[Piece]:
        return found() if self._shape is None else self._shape.shaped(found())

    def _assigned(self, heads: DataFrame, table: StreamTable, most: int) -> Any:
        """The records here, `most` of them, with their sizes; those have no value that would make them too many bytes.

        All of them come, for assigning them takes less than handing them to Python workers.

        A task for each core reads several partitions of Kafka, one after another: a task for each partition of a small
        batch costs more than its records.
        """
        bounded = without_large(heads, self._part_bytes // max(1, most))
        few = bounded.coalesce(self._spark.sparkContext.defaultParallelism)
        records = few.toArrow()
        return assigned_here(records, table, self._settings.topics.prefix).append_column("size", records.column("size"))

    def _stream_table(self, batch: int) -> StreamTable:
        """The generations up to now (docs/contracts.md 5): read to the end before each micro-batch, and noted."""
        published = self._generations.refresh()
        if not published:
            raise ServiceError("no valid generation is published yet: is an agent running?")
        used, known_until = self._batches.used(batch, published, self._generations.known_until)
        uuids = tuple(generation.uuid for generation in used)
        if self._table is None or self._table[0] != uuids:  # a large ring takes seconds to unpack
            self._table = uuids, StreamTable.of_published(used, known_until)
        return replace(self._table[1], known_until=known_until)

    def _hold(self, held: _Held, what: str, attempt: Callable[[], T]) -> T:
        """The attempt's result: again and again after a ServiceError, until told to stop.

        A stream that ends by itself gives up, and raises ServiceError, after stream.once_wait_seconds.
        """
        began, before, wait = time.monotonic(), held.seconds, _FIRST_WAIT_SECONDS
        waits = False
        while True:
            try:
                result = attempt()
            except ServiceError as error:
                words, waits = f"{what}: {error}", True
                self._metrics.failed(what, str(error))
                if self._patience is not None and time.monotonic() - began >= self._patience:
                    after = f"after {self._patience:g} s (stream.once_wait_seconds)"
                    raise ServiceError(f"batch {held.batch} is given up {after} for the {words}") from error
            else:
                if waits:
                    show_status(self._query, PROCESSING)
                    self._metrics.goes_on()
                return result
            held.reasons.setdefault(words)
            log.warning("batch %d waits for the %s; next try in %.1f s", held.batch, words, wait)
            show_status(self._query, f"Batch {held.batch} waits for the {words}")
            if self._stop.wait(wait):
                raise StoppedError(what)
            held.seconds = before + time.monotonic() - began
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS if what == "sink" else _LONGEST_KAFKA_WAIT_SECONDS)


@dataclass(slots=True)
class _Held:
    """How long a batch has waited so far, and for what, each reason once."""

    batch: int
    seconds: float = 0.0
    reasons: dict[str, None] = field(default_factory=dict)
