"""A snapshot's round: read by tasks, and written into the sink, as micro-batches are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tailrace_common.settings import Settings
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.job.batch_records import part_bytes
from tailrace_spark.job.fitness import refused_by
from tailrace_spark.job.offsets import Offsets
from tailrace_spark.job.progress import ExecutionChoice
from tailrace_spark.job.runner import Attempts, ExecutorShares, Runner
from tailrace_spark.shaping import masks_of, shape_of
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.snapshot.reading import UnreadableError
from tailrace_spark.snapshot.stream_rows import HEAD, SCHEMA, RoundPosition, RoundReader, distinct_offsets
from tailrace_spark.source.decode import BY_OFFSET, pieces
from tailrace_spark.streams.assign import assigned_here
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.job import TaskRunner
from tailrace_spark.tasks.partition_writer import TaskSettings

# Chunks are shares of hashes, so some have a few records more than others.
_FULL_CHUNK: Final = 0.8


@dataclass(frozen=True, slots=True)
class ReadRound:
    """The records of a round, as `with_head` gives Kafka's. `octets` counts their messages, `largest` those of a slot.

    They are in no order, and two may have one offset (`stream_rows.distinct_offsets`).
    """

    frame: DataFrame
    rows: int
    octets: int
    largest: int


@contextmanager
def read_round(spark: SparkSession, reader: RoundReader) -> Iterator[ReadRound]:
    """Read a round, by the reader's tasks. Raises ServiceError where a slot cannot be read, of these UnreadableError.

    What is lost with an executor is read again when it is needed. Where that fails, so does the job that needs it: the
    slot's records would else be missing from what is written.
    """
    tasks = spark.range(0, len(reader.tasks), 1, len(reader.tasks))
    frame = tasks.mapInArrow(reader.rows, from_arrow_schema(SCHEMA)).persist(StorageLevel.DISK_ONLY)
    try:
        counts = frame.groupBy("slot").agg(
            F.count("op").alias("rows"),
            F.sum(F.length("value")).alias("octets"),
            F.max("problem").alias("problem"),
            F.max("final").alias("final"),
        )
        by_slot = counts.collect()
        problems = sorted((not row.final, row.problem) for row in by_slot if row.problem is not None)
        if problems:
            passing, words = problems[0]
            raise ServiceError(words) if passing else UnreadableError(words)
        octets = [row.octets or 0 for row in by_slot]
        problem = F.col("problem")
        readable = F.when(problem.isNull(), F.lit(True)).otherwise(F.raise_error(problem))
        records = frame.where(readable).select(*HEAD)
        yield ReadRound(records, sum(row.rows for row in by_slot), sum(octets), max(octets, default=0))
    finally:
        frame.unpersist()


@dataclass(frozen=True, slots=True)
class Written:
    """A round to be written: its records, their place, and what reads them.

    `schemas` has the schema of all of them. `ends`: the offsets behind it, for the sink.
    """

    read: ReadRound
    position: RoundPosition
    schemas: Mapping[bytes, SchemaEntry]
    table: StreamTable
    ends: Offsets


class RoundWriter:
    """Writes rounds into one sink, by its `runner`: on executors by tasks, whose records come sorted, or here."""

    def __init__(self, spark: SparkSession, settings: Settings, sink: Sink, runner: Runner) -> None:
        stream, capabilities = settings.stream, sink.capabilities
        self._spark = spark
        self._prefix = settings.topics.prefix
        self._ordered = capabilities.ordered
        # Filters count what they leave out of a batch, so a snapshot has some of its own.
        self._shape = shape_of(stream, sink) if refused_by(capabilities) is None else None
        self._runner = runner
        self._tasks: TaskRunner | None = None
        # Images are made of rows that one process merges (sinks/images): of changes in the order of their partitions.
        if capabilities.executors and (capabilities.logs_changes or not capabilities.ordered):
            filters = None if self._shape is None else self._shape.task_filters
            task_settings = TaskSettings(
                self._prefix, masks_of(stream), stream.accept_early, mixed=False, sorted=True, filters=filters
            )
            self._tasks = TaskRunner(spark, task_settings)
        self._choice = ExecutionChoice(stream.execution)
        self._chunk_bytes = part_bytes(spark, settings)

    def write(self, written: Written, until_done: Attempts) -> Summary:
        """Write a round; a part of it may be in the sink already."""
        tasks = self._tasks
        if not written.read.rows:
            return Summary()
        batch = -written.position.number - 2  # of no batch of the stream
        if tasks is not None:

            def shares() -> ExecutorShares:
                topics, frame = {written.position.topic: written.position.partitions}, _sorted(written.read.frame)
                return ExecutorShares(tasks, frame, written.table, written.schemas, topics)

            done = self._runner.on_executors(batch, written.read.rows, written.ends, shares, self._choice, until_done)
            if done is not None:
                return done[0]  # the counts are of the log
        return self._here(batch, written, until_done)

    def _here(self, batch: int, written: Written, until_done: Attempts) -> Summary:
        """Write it in chunks of bounded bytes. A sink that appends takes all of them as one batch."""
        chunks = max(1, int(-(-written.read.octets // (self._chunk_bytes * _FULL_CHUNK))))

        def pieces_of(numbers: Iterable[int]) -> Iterator[Piece]:
            for chunk in numbers:
                records = self._chunk(written, chunk, chunks)
                yield from pieces(assigned_here(records, written.table, self._prefix), written.schemas)

        def attempt(numbers: Iterable[int]) -> Summary:
            read = pieces_of(numbers)
            return self._runner.here(batch, read if self._shape is None else self._shape.shaped(read))

        if self._ordered:
            return until_done(partial(attempt, range(chunks)))
        return sum((until_done(partial(attempt, (chunk,))) for chunk in range(chunks)), Summary())

    def _chunk(self, written: Written, number: int, chunks: int) -> Any:
        """The records of a share of the offsets, in their order."""
        first, width = written.position.first, written.position.end - written.position.first
        start, end = first + width * number // chunks, first + width * (number + 1) // chunks
        share = written.read.frame.where(f"offset >= {start} AND offset < {end}")
        records = share.coalesce(self._spark.sparkContext.defaultParallelism).toArrow().sort_by(BY_OFFSET)
        batches = list(distinct_offsets(records.to_batches()))
        return pa.Table.from_batches(batches, records.schema)


def _sorted(frame: DataFrame) -> DataFrame:
    """Each partition's records in one task, by offset, and no offset twice."""
    by_partition = frame.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    return by_partition.mapInArrow(distinct_offsets, by_partition.schema)
