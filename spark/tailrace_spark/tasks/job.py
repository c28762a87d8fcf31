"""Runs a micro-batch's tasks on Spark's executors, and brings their outcomes to the driver."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from tailrace_schemas.avro import SchemaEntry
from tailrace_spark.sinks.protocol import DataWriter
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.outcome import SCHEMA, Outcome, outcomes_of
from tailrace_spark.tasks.partition_writer import PartitionWriter, TaskSchemas, TaskSettings


class TaskRunner:
    """Runs the tasks of batches. Generations and schemas are broadcast once, and again when they have changed."""

    def __init__(self, spark: SparkSession, settings: TaskSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._generations: tuple[object, Broadcast[StreamTable]] | None = None
        self._schemas: tuple[Mapping[bytes, SchemaEntry], Broadcast[TaskSchemas]] | None = None

    def run(
        self,
        frame: DataFrame,
        writer: DataWriter,
        table: StreamTable,
        schemas: Mapping[bytes, SchemaEntry],
        partitions: Mapping[str, int],
        read_back: ReadBack | None = None,
    ) -> list[Outcome]:
        """The outcomes of all Kafka partitions that a batch of `with_head` has records of.

        `partitions` counts those of each topic. `schemas` is a copy, which stays as it is.
        Raises what Spark raises where a job fails: what tasks can tell is in the outcomes.
        """
        partition_writer = PartitionWriter(
            writer,
            self._broadcast_generations(table),
            table.known_until,
            self._broadcast_schemas(schemas),
            partitions,
            self._settings,
            read_back,
        )
        rows = self._by_partition(frame).mapInArrow(partition_writer.outcomes, SCHEMA).collect()
        return outcomes_of(bytes(row[0]) for row in rows)

    def _by_partition(self, frame: DataFrame) -> DataFrame:
        """Kafka's source has each partition's records together and in their order, which a shuffle does not leave."""
        if self._settings.sorted:
            return frame
        if self._settings.mixed:
            return frame.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
        return frame.coalesce(self._settings.per_core * self._spark.sparkContext.defaultParallelism)

    def _broadcast_generations(self, table: StreamTable) -> Broadcast[StreamTable]:
        if self._generations is None or self._generations[0] is not table.generations:
            if self._generations is not None:
                self._generations[1].unpersist()
            self._generations = table.generations, self._spark.sparkContext.broadcast(table)
        return self._generations[1]

    def _broadcast_schemas(self, schemas: Mapping[bytes, SchemaEntry]) -> Broadcast[TaskSchemas]:
        if self._schemas is None or not _same(self._schemas[0], schemas):
            if self._schemas is not None:
                self._schemas[1].unpersist()
            self._schemas = schemas, self._spark.sparkContext.broadcast(TaskSchemas.of(schemas))
        return self._schemas[1]


def _same(schemas: Mapping[bytes, SchemaEntry], other_schemas: Mapping[bytes, SchemaEntry]) -> bool:
    """Whether both have the same entries; one that was announced again is another."""
    return schemas.keys() == other_schemas.keys() and all(
        entry is other_schemas[name] for name, entry in schemas.items()
    )
