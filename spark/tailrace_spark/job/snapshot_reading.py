"""A round of a snapshot read by tasks: its records stay on the executors' disks until they are written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace_schemas.errors import ServiceError
from tailrace_spark.snapshot.reading import UnreadableError
from tailrace_spark.snapshot.stream_rows import COLUMNS, HEAD, RoundReader


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

    What is lost with an executor is read again when it is needed.
    """
    tasks = spark.range(0, len(reader.tasks), 1, len(reader.tasks))
    frame = tasks.mapInArrow(reader.rows, COLUMNS).persist(StorageLevel.DISK_ONLY)
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
        records = frame.where("problem IS NULL").select(*HEAD)
        yield ReadRound(records, sum(row.rows for row in by_slot), sum(octets), max(octets, default=0))
    finally:
        frame.unpersist()
