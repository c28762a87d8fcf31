"""Writes a micro-batch into the sink, and says what became of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_common.tracing.spans import TRACEPARENT
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, Summary, partition_counts
from tailrace_spark.job.batch_records import part_bytes, parts_of, shaped, with_values, without_large
from tailrace_spark.job.endings import StoppedError
from tailrace_spark.job.generation_log import BatchGenerations
from tailrace_spark.job.offsets import PlannedBatch
from tailrace_spark.job.progress import Execution, ExecutionChoice, Progress, TableProgress
from tailrace_spark.job.retry import SINK, Blockage, Retry
from tailrace_spark.job.runner import ExecutorShares, Runner
from tailrace_spark.job.sink_check import SinkCheck
from tailrace_spark.job.topic_watch import TopicWatch
from tailrace_spark.shaping import Shape
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.source.decode import BY_OFFSET, pieces
from tailrace_spark.source.kafka import read_some, with_head
from tailrace_spark.source.table_updates import WholeUpdates, with_streams
from tailrace_spark.streams.assign import assigned_here
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.job import TaskRunner
from tailrace_spark.tasks.outcome import RecordCounts, counts_of
from tailrace_spark.tasks.partition_writer import update_reading

log = logging.getLogger("tailrace_spark")

_REST_RECORDS: Final = 2_000
T = TypeVar("T")


class BatchWriter:
    """Writes batches into one sink, and blocks on each until it is written. The driver's memory is bounded, by parts.

    `sink_lock` is held while the sink is used. `tasks` are there for sinks whose batches executors can write.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        sink: Sink,
        runner: Runner,
        sink_lock: threading.Lock,
        generations: BatchGenerations,
        schemas: SchemaReader,
        *,
        shape: Shape | None,
        watch: TopicWatch,
        sink_check: SinkCheck,
        tasks: TaskRunner | None,
        retry: Retry,
        read_back: Callable[[], ReadBack | None],
        stop: threading.Event,
        on_parts: Callable[[PlannedBatch | None, int], None] | None = None,
    ) -> None:
        """`on_parts` hears of each batch that the driver writes, by its plan, in how many parts it will come."""
        self._spark = spark
        self._settings = settings
        self._sink = sink
        self._runner = runner
        self._sink_lock = sink_lock
        self._generations = generations
        self._schemas = schemas
        self._shape = shape
        self._watch = watch
        self._sink_check = sink_check
        self._tasks = tasks
        self._choice = ExecutionChoice(settings.stream.execution)
        self._retry = retry
        self._read_back = read_back
        self._stop = stop
        self._on_parts = on_parts
        self._part_bytes = part_bytes(spark, settings)

    def write(self, frame: DataFrame, batch: int) -> Progress:
        """Write a batch of `with_head`. Raises StoppedError where the stream is stopped before all of it is written."""
        began = time.monotonic()
        blocked = Blockage(batch)
        table = self._retry.until_done(blocked, "generations", lambda: self._generations.table(batch))
        plan = self._watch.plan(batch)
        if plan is not None:
            self._retry.until_done(blocked, "topics", lambda: self._watch.check(plan))
        start, end = (plan.start, plan.end) if plan else ({}, {})
        self._in_sink(blocked, lambda: self._sink_check.before(batch, start))
        outcome = self._on_executors(blocked, frame, plan, table)
        if outcome is None:
            outcome = self._on_driver(blocked, frame, plan, table)
        self._in_sink(blocked, lambda: self._sink_check.behind(batch, end))
        return replace(
            outcome,
            ends=None if plan is None else plan.end,
            blocked_seconds=blocked.seconds,
            blocked_by=tuple(blocked.reasons),
            seconds=time.monotonic() - began,
        )

    def _on_executors(
        self, blocked: Blockage, frame: DataFrame, plan: PlannedBatch | None, table: StreamTable
    ) -> Progress | None:
        """The outcome of a batch that executors have written; None of one that is to be written here."""
        tasks = self._tasks
        if tasks is None or plan is None:
            return None

        def shares() -> ExecutorShares:
            schemas = self._retry.until_done(blocked, "schemas", self._schemas_now)
            counts = {topic: count for topic, count in partition_counts(plan.end).items() if topic in plan.topics}
            return ExecutorShares(tasks, frame, table, schemas, counts, self._read_back())

        until_done = partial(self._in_sink, blocked)
        done = self._runner.on_executors(blocked.batch, plan.size, plan.end, shares, self._choice, until_done)
        if done is None:
            return None
        return _progress(blocked, *done, "executors")

    def _on_driver(
        self, blocked: Blockage, frame: DataFrame, plan: PlannedBatch | None, table: StreamTable
    ) -> Progress:
        records = self.collect(frame, table, frame.count() if plan is None else plan.size)
        if records.num_rows:
            self._retry.until_done(blocked, "schemas", self._schemas_now)
        summary = self._in_parts(blocked, records, plan, table)
        counts = replace(counts_of(records), left_out={} if self._shape is None else dict(self._shape.left_out))
        return _progress(blocked, summary, counts, "driver")

    def _in_parts(self, blocked: Blockage, records: Any, plan: PlannedBatch | None, table: StreamTable) -> Summary:
        """Write the records; those that are too many bytes for the driver part by part, in the order of their offsets.

        Each part is a batch of its own for the sink: all of it is taken in. A part that is redelivered after a crash
        changes nothing more.
        """
        summary, parts = Summary(), parts_of(records, self._part_bytes)
        if len(parts) > 1:
            size, limit = (count / 2**20 for count in (pc.sum(records.column("size")).as_py(), self._part_bytes))
            log.info(
                "batch %d (%.0f MiB) is written in %d parts of at most %.0f MiB", blocked.batch, size, len(parts), limit
            )
        if self._on_parts is not None:
            self._on_parts(plan, len(parts))
        for index, records_of_part in enumerate(parts):
            if index and self._stop.is_set():
                raise StoppedError("between two parts of a batch")
            pieces_of = self._pieces(records_of_part, table)
            summary += self._in_sink(blocked, partial(self._here, blocked.batch, pieces_of))
        return summary

    def collect(self, heads: DataFrame, table: StreamTable, limit: int) -> Any:
        """Collect at most `limit` records into a pyarrow Table, with their streams and sizes.

        Values that would make them more than `part_bytes` are left out: `with_values` reads them again. All records
        come to the driver, since assigning them takes less than handing them to Python workers.
        """
        bounded = without_large(heads, self._part_bytes // max(1, limit))
        # A task for each core reads several partitions of Kafka, one after another: a task for each partition of a
        # small batch costs more than its records.
        few = bounded.coalesce(self._spark.sparkContext.defaultParallelism)
        records = few.toArrow()
        assigned = assigned_here(records, table, self._settings.topics.prefix)
        for name in ("size", TRACEPARENT):
            if name in records.column_names:
                assigned = assigned.append_column(name, records.column(name))
        return assigned

    def _schemas_now(self) -> dict[bytes, SchemaEntry]:
        """All of `.schemas`, read to its end: decoding reads on only for an id that it lacks, not for one announced
        again. Raises ServiceError where Kafka does not answer.
        """
        self._schemas.refresh()
        return dict(self._schemas)

    def _pieces(self, records: Any, table: StreamTable) -> Callable[[], Iterable[Piece]]:
        """A function that gives the pieces of a part as the sink takes them, as often as it is called."""
        capabilities, early = self._sink.capabilities, self._settings.stream.accept_early
        complete = self._with_values(records)
        if (reading := update_reading(capabilities, {})) is None:
            ordered = complete.sort_by(BY_OFFSET) if capabilities.ordered else complete
            read_back = self._read_back()
            return lambda: shaped(pieces(ordered, self._schemas, early=early), read_back, self._shape)
        by_offset = complete.sort_by(BY_OFFSET)

        def decoded(batch: Any) -> Iterator[Piece]:
            for piece in pieces(batch, self._schemas, early=early):
                yield with_streams(piece, table, reading.write_times)

        def read_on(partition: KafkaPartition, offset: int) -> tuple[Iterable[Piece], int | None]:
            heads = with_head(read_some(self._spark, self._settings, partition, offset, _REST_RECORDS))
            rest = self.collect(heads, table, _REST_RECORDS).sort_by(BY_OFFSET)
            first = self._with_values(parts_of(rest, self._part_bytes)[0])
            unread = rest.num_rows == _REST_RECORDS or first.num_rows < rest.num_rows
            return decoded(first), first.column("offset")[-1].as_py() + 1 if unread else None

        updates = WholeUpdates(partial(decoded, by_offset), _ends_of(by_offset), read_on)
        return lambda: reading.finished(updates)

    def _with_values(self, part: Any) -> Any:
        return with_values(self._spark, self._settings, part, self._part_bytes)

    def _here(self, batch: int, pieces_of: Callable[[], Iterable[Piece]]) -> Summary:
        return self._runner.here(batch, pieces_of())

    def _in_sink(self, blocked: Blockage, use_sink: Callable[[], T]) -> T:
        """The result of calls that are made until one is done, while no other thread uses the sink."""

        def alone() -> T:
            with self._sink_lock:
                return use_sink()

        return self._retry.until_done(blocked, SINK, alone)


def _progress(blocked: Blockage, summary: Summary, counts: RecordCounts, execution: Execution) -> Progress:
    now = time.time()
    return Progress(
        batch=blocked.batch,
        records=counts.records,
        summary=summary,
        marks=counts.marks,
        tables={
            name: TableProgress(records, max(0.0, now - newest / 1e6))
            for name, (records, newest) in counts.tables.items()
        },
        left_out=counts.left_out,
        execution=execution,
        traces=counts.traces,
    )


def _ends_of(records: Any) -> dict[KafkaPartition, int]:
    """The offset behind each partition's last record."""
    last = records.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    return {(row["topic"], row["partition"]): row["offset_max"] + 1 for row in last.to_pylist()}
