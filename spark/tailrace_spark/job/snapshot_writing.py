"""A snapshot's round written into the sink, as micro-batches are: by the sink's tasks, or by the driver in chunks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tailrace_common.settings import Settings
from tailrace_schemas.avro import SchemaEntry
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.job.execution import FEW_RECORDS
from tailrace_spark.job.executor_batches import ExecutorBatches, MissingPackagesError, RecordSource
from tailrace_spark.job.offsets import Offsets
from tailrace_spark.job.parts import part_bytes
from tailrace_spark.job.snapshot_reading import ReadRound
from tailrace_spark.job.task_loop import SharedKeysError
from tailrace_spark.shaping import Shape
from tailrace_spark.sinks.protocol import DriverOnlyError, Sink
from tailrace_spark.snapshot.stream_rows import RoundPosition, distinct_offsets
from tailrace_spark.source.decode import pieces
from tailrace_spark.streams.assign import assigned_here
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.job import TaskRunner

log = logging.getLogger("tailrace_spark")

_BY_OFFSET: Final = [(name, "ascending") for name in ("topic", "partition", "offset")]
# Chunks are shares of hashes, so some have a few records more than others.
_FULL_CHUNK: Final = 0.8

Attempt = Callable[[Callable[[], Summary]], Summary]
"""Calls a function that uses the sink, while nobody else does, until it is done."""


@dataclass(frozen=True, slots=True)
class Written:
    """A round to be written: its records, their place, and what reads them.

    `schemas` are all that are published, and that of the records. `ends`: the offsets behind it, for the sink.
    """

    read: ReadRound
    position: RoundPosition
    schemas: Mapping[bytes, SchemaEntry]
    table: StreamTable
    ends: Offsets


class RoundWriter:
    """Writes rounds into one sink. `runner` runs tasks over records that come sorted."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        sink: Sink,
        shape: Shape | None,
        executors: ExecutorBatches | None,
        runner: TaskRunner | None,
    ) -> None:
        self._spark = spark
        self._prefix = settings.topics.prefix
        self._execution = settings.stream.execution
        self._sink = sink
        self._shape = shape
        self._executors = executors
        self._runner = runner
        self._chunk_bytes = part_bytes(spark, settings)
        # Images are made of rows that one process merges (sinks/images): of changes in the order of their partitions.
        capabilities = sink.capabilities
        self._by_driver = capabilities.tasks is None or (capabilities.ordered and not capabilities.logs_changes)

    def write(self, written: Written, until_done: Attempt) -> Summary:
        """Write a round; a part of it may be in the sink already."""
        executors, runner = self._executors, self._runner
        if not written.read.rows:
            return Summary()
        if executors is None or runner is None:
            return self._on_driver(written, until_done)
        small = self._execution == "auto" and written.read.rows < FEW_RECORDS
        if self._by_driver or small or self._execution == "driver":
            until_done(_without_result(executors.fence))
            return self._on_driver(written, until_done)
        records = RecordSource(runner, written.schemas, _checked_topics(written.position))
        batch = -written.position.number - 2  # of no batch of the stream
        frame = _sorted(written.read.frame)
        try:
            return until_done(
                lambda: executors.write(frame, batch, written.ends, written.table, records)[0]  # counts are of the log
            )
        except (SharedKeysError, DriverOnlyError, MissingPackagesError) as error:
            log.info("round %d of the snapshot is written by the driver: %s", written.position.number, error)
            until_done(_without_result(executors.fence))
            return self._on_driver(written, until_done)

    def _on_driver(self, written: Written, until_done: Attempt) -> Summary:
        """Write it in chunks of bounded bytes. A sink that appends takes all of them as one batch."""
        chunks = max(1, int(-(-written.read.octets // (self._chunk_bytes * _FULL_CHUNK))))

        def pieces_of(numbers: Iterable[int]) -> Iterator[Piece]:
            for chunk in numbers:
                records = self._chunk(written, chunk, chunks)
                yield from pieces(assigned_here(records, written.table, self._prefix), written.schemas)

        def attempt(numbers: Iterable[int]) -> Summary:
            read = pieces_of(numbers)
            return self._sink.write(read if self._shape is None else self._shape.shaped(read))

        if self._sink.capabilities.ordered:
            return until_done(partial(attempt, range(chunks)))
        return sum((until_done(partial(attempt, (chunk,))) for chunk in range(chunks)), Summary())

    def _chunk(self, written: Written, number: int, chunks: int) -> Any:
        """The records of a share of the offsets, in their order."""
        first, width = written.position.first, written.position.end - written.position.first
        start, end = first + width * number // chunks, first + width * (number + 1) // chunks
        share = written.read.frame.where(f"offset >= {start} AND offset < {end}")
        records = share.coalesce(self._spark.sparkContext.defaultParallelism).toArrow().sort_by(_BY_OFFSET)
        batches = list(distinct_offsets(records.to_batches()))
        return pa.Table.from_batches(batches, records.schema)


def _sorted(frame: DataFrame) -> DataFrame:
    """Each partition's records in one task, by offset, and no offset twice."""
    by_partition = frame.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    return by_partition.mapInArrow(distinct_offsets, by_partition.schema)


def _checked_topics(position: RoundPosition) -> Mapping[str, int | None]:
    """The topic with the number of its partitions, where records stand in those of their tokens."""
    return {position.topic: position.partitions}


def _without_result(call: Callable[[], None]) -> Callable[[], Summary]:
    def called() -> Summary:
        call()
        return Summary()

    return called
