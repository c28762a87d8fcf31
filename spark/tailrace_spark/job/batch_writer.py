"""Writes a micro-batch into the sink, and says what became of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pyarrow.compute as pc
from pyspark.sql import DataFrame

from tailrace_spark.batch.delivery import Piece, Summary, partition_counts
from tailrace_spark.job.batch_records import BatchRecords, parts_of
from tailrace_spark.job.endings import StoppedError
from tailrace_spark.job.generation_log import BatchGenerations
from tailrace_spark.job.offsets import PlannedBatch
from tailrace_spark.job.progress import Execution, ExecutionChoice, Progress, TableProgress
from tailrace_spark.job.retry import SINK, Blockage, Retry
from tailrace_spark.job.runner import ExecutorShares, Runner
from tailrace_spark.job.sink_check import SinkCheck
from tailrace_spark.job.topic_watch import TopicWatch
from tailrace_spark.shaping import Shape
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.job import TaskRunner
from tailrace_spark.tasks.outcome import RecordCounts, counts_of

log = logging.getLogger("tailrace_spark")

T = TypeVar("T")


class BatchWriter:
    """Writes batches into one sink, and blocks on each until it is written.

    `sink_lock` is held while the sink is used. `tasks` are there for sinks whose batches executors can write; `choice`
    says when they do.
    """

    def __init__(
        self,
        runner: Runner,
        sink_lock: threading.Lock,
        records: BatchRecords,
        generations: BatchGenerations,
        *,
        shape: Shape | None,
        watch: TopicWatch,
        sink_check: SinkCheck,
        tasks: TaskRunner | None,
        choice: ExecutionChoice,
        retry: Retry,
        stop: threading.Event,
        on_parts: Callable[[int, int], None] | None = None,
    ) -> None:
        """`on_parts` hears of each batch that the driver writes, by its number, in how many parts it will come."""
        self._runner = runner
        self._sink_lock = sink_lock
        self._records = records
        self._generations = generations
        self._shape = shape
        self._watch = watch
        self._sink_check = sink_check
        self._tasks = tasks
        self._choice = choice
        self._retry = retry
        self._stop = stop
        self._on_parts = on_parts

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
            outcome = self._on_driver(blocked, frame, frame.count() if plan is None else plan.size, table)
        self._in_sink(blocked, lambda: self._sink_check.behind(batch, end))
        return replace(
            outcome,
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
            schemas = self._retry.until_done(blocked, "schemas", self._records.schemas_now)
            counts = {topic: count for topic, count in partition_counts(plan.end).items() if topic in plan.topics}
            return ExecutorShares(tasks, frame, table, schemas, counts, self._records.read_back())

        until_done = partial(self._in_sink, blocked)
        done = self._runner.on_executors(blocked.batch, plan.size, plan.end, shares, self._choice, until_done)
        if done is None:
            return None
        return _progress(blocked, *done, "executors")

    def _on_driver(self, blocked: Blockage, frame: DataFrame, limit: int, table: StreamTable) -> Progress:
        records = self._records.collect(frame, table, limit)
        if records.num_rows:
            self._retry.until_done(blocked, "schemas", self._records.schemas_now)
        summary = self._in_parts(blocked, records, table)
        counts = replace(counts_of(records), left_out={} if self._shape is None else dict(self._shape.left_out))
        return _progress(blocked, summary, counts, "driver")

    def _in_parts(self, blocked: Blockage, records: Any, table: StreamTable) -> Summary:
        """Write the records; those that are too many bytes for the driver part by part, in the order of their offsets.

        Each part is a batch of its own for the sink: all of it is taken in. A part that is redelivered after a crash
        changes nothing more.
        """
        summary, parts = Summary(), parts_of(records, self._records.part_bytes)
        if len(parts) > 1:
            size, limit = (
                count / 2**20 for count in (pc.sum(records.column("size")).as_py(), self._records.part_bytes)
            )
            log.info(
                "batch %d (%.0f MiB) is written in %d parts of at most %.0f MiB", blocked.batch, size, len(parts), limit
            )
        if self._on_parts is not None:
            self._on_parts(blocked.batch, len(parts))
        for index, records_of_part in enumerate(parts):
            if index and self._stop.is_set():
                raise StoppedError("between two parts of a batch")
            pieces_of = self._records.pieces(records_of_part, table)
            summary += self._in_sink(blocked, partial(self._here, blocked.batch, pieces_of))
        return summary

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
