"""The records of a micro-batch, collected on the driver, and the pieces that a sink takes of them.

One job brings the heads of all records, their sizes, and the values of those that are small enough for all to fit.
The larger values are read from Kafka again, part by part, where a batch has any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_common.tracing.spans import TRACEPARENT
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.jvm import jvm_of
from tailrace_spark.shaping import Shape
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.source.decode import BY_OFFSET, pieces
from tailrace_spark.source.kafka import read_ranges, read_some, with_head
from tailrace_spark.source.table_updates import WholeUpdates, with_streams
from tailrace_spark.streams.assign import assigned_here
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.partition_writer import update_reading

_REST_RECORDS: Final = 2_000
PLACE: Final = ("topic", "partition", "offset")
_IN_ORDER: Final = [(name, "ascending") for name in PLACE]
# Of the driver's memory: while Spark collects bytes it has them up to four times, in its tasks and on their way.
_SHARE_OF_MEMORY: Final = 8
_LEAST_BYTES: Final = 1 << 20
# Large values stand together in one buffer of a task, which doubles while it grows: fewer bytes at a time.
_READS_OF_A_PART: Final = 4


class BatchRecords:
    """Collects the records of batches for one sink. Memory is bounded by `part_bytes`."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        sink: Sink,
        shape: Shape | None,
        schemas: SchemaReader,
        read_back: Callable[[], ReadBack | None] = lambda: None,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._sink = sink
        self._shape = shape
        self._schemas = schemas
        self.read_back = read_back
        self.part_bytes = part_bytes(spark, settings)

    def collect(self, heads: DataFrame, table: StreamTable, limit: int) -> Any:
        """Collect at most `limit` records into a pyarrow Table, with their streams and sizes.

        Values that would make them more than `part_bytes` are left out: `with_values` reads them again. All records
        come to the driver, since assigning them takes less than handing them to Python workers.
        """
        bounded = without_large(heads, self.part_bytes // max(1, limit))
        # A task for each core reads several partitions of Kafka, one after another: a task for each partition of a
        # small batch costs more than its records.
        few = bounded.coalesce(self._spark.sparkContext.defaultParallelism)
        records = few.toArrow()
        assigned = assigned_here(records, table, self._settings.topics.prefix)
        for name in ("size", TRACEPARENT):
            if name in records.column_names:
                assigned = assigned.append_column(name, records.column(name))
        return assigned

    def schemas_now(self) -> dict[bytes, SchemaEntry]:
        """All of `.schemas`, read to its end: decoding reads on only for an id that it lacks, not for one announced
        again. Raises ServiceError where Kafka does not answer.
        """
        self._schemas.refresh()
        return dict(self._schemas)

    def pieces(self, records: Any, table: StreamTable) -> Callable[[], Iterable[Piece]]:
        """A function that gives the pieces of a part as the sink takes them, as often as it is called."""
        capabilities, early = self._sink.capabilities, self._settings.stream.accept_early
        complete = self._with_values(records)
        if (reading := update_reading(capabilities, {})) is None:
            ordered = complete.sort_by(BY_OFFSET) if capabilities.ordered else complete
            read_back = self.read_back()
            return lambda: shaped(pieces(ordered, self._schemas, early=early), read_back, self._shape)
        by_offset = complete.sort_by(BY_OFFSET)

        def decoded(batch: Any) -> Iterator[Piece]:
            for piece in pieces(batch, self._schemas, early=early):
                yield with_streams(piece, table, reading.write_times)

        def read_on(partition: KafkaPartition, offset: int) -> tuple[Iterable[Piece], int | None]:
            heads = with_head(read_some(self._spark, self._settings, partition, offset, _REST_RECORDS))
            rest = self.collect(heads, table, _REST_RECORDS).sort_by(BY_OFFSET)
            first = self._with_values(parts_of(rest, self.part_bytes)[0])
            unread = rest.num_rows == _REST_RECORDS or first.num_rows < rest.num_rows
            return decoded(first), first.column("offset")[-1].as_py() + 1 if unread else None

        updates = WholeUpdates(partial(decoded, by_offset), _ends_of(by_offset), read_on)
        return lambda: reading.finished(updates)

    def _with_values(self, part: Any) -> Any:
        return with_values(self._spark, self._settings, part, self.part_bytes)


def shaped(decoded: Iterable[Piece], read_back: ReadBack | None, shape: Shape | None) -> Iterable[Piece]:
    """Pieces with what the log leaves open, and then as the sink is to see them."""
    complete = decoded if read_back is None else read_back.added(decoded)
    return complete if shape is None else shape.shaped(complete)


def _ends_of(records: Any) -> dict[KafkaPartition, int]:
    """The offset behind each partition's last record."""
    last = records.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    return {(row["topic"], row["partition"]): row["offset_max"] + 1 for row in last.to_pylist()}


class MissingRecordsError(Exception):
    """Kafka has no longer what the batch was planned with."""


def part_bytes(spark: SparkSession, settings: Settings) -> int:
    """The most bytes of messages in a part: the setting, else an eighth of the driver's memory."""
    if settings.stream.max_bytes_per_part is not None:
        return settings.stream.max_bytes_per_part
    return max(_LEAST_BYTES, int(jvm_of(spark).java.lang.Runtime.getRuntime().maxMemory()) // _SHARE_OF_MEMORY)


def without_large(heads: DataFrame, largest: int) -> DataFrame:
    """The records of `with_head` with their `size` in bytes, and no `value` where that is more than `largest`."""
    size = F.length("value")
    return heads.withColumn("size", size).withColumn("value", F.when(size <= largest, F.col("value")))


def parts_of(records: pa.Table, limit: int) -> list[pa.Table]:
    """Records with a `size`, cut into parts of at most so many bytes, and at least one record.

    All of them as they are, where they fit; else in the order of topic, partition and offset. Where they are cut
    follows from the records alone, so a batch that is delivered again has the same parts.
    """
    if records.num_rows == 0 or (pc.sum(records.column("size")).as_py() or 0) <= limit:
        return [records]
    ordered = records.sort_by(_IN_ORDER)
    ends = np.cumsum(ordered.column("size").to_numpy())
    parts, begin, bytes_before = [], 0, 0
    while begin < len(ends):
        end = max(begin + 1, int(np.searchsorted(ends, bytes_before + limit, side="right")))
        parts.append(ordered.slice(begin, end - begin))
        begin, bytes_before = end, int(ends[end - 1])
    return parts


def with_values(spark: SparkSession, settings: Settings, part: pa.Table, limit: int) -> pa.Table:
    """The part, of at most so many bytes, with the values that it lacks, read from Kafka in a few jobs.

    Raises MissingRecordsError where they are gone.
    """
    lacking = pc.is_null(part.column("value"))
    if not pc.any(lacking).as_py():
        return part
    ordered = part.sort_by(_IN_ORDER)
    mask = pc.is_null(ordered.column("value")).combine_chunks()
    missing = ordered.filter(mask).select([*PLACE, "size"])
    bytes_per_read = max(_LEAST_BYTES, limit // _READS_OF_A_PART)
    fetched = pa.concat_tables(
        [_read(spark, settings, chunk.select(PLACE)) for chunk in parts_of(missing, bytes_per_read)]
    )
    if fetched.num_rows != missing.num_rows:
        raise MissingRecordsError(f"{missing.num_rows - fetched.num_rows} of {missing.num_rows} records")
    values = fetched.sort_by(_IN_ORDER).column("value").combine_chunks().cast(pa.binary())
    complete = pc.replace_with_mask(ordered.column("value").combine_chunks(), mask, values)
    return ordered.set_column(ordered.schema.get_field_index("value"), "value", complete)


def _read(spark: SparkSession, settings: Settings, record_ids: pa.Table) -> pa.Table:
    """The values at these places, and no others."""
    spans = record_ids.group_by(["topic", "partition"]).aggregate([("offset", "min"), ("offset", "max")])
    ranges: dict[KafkaPartition, tuple[int, int]] = {
        (row["topic"], row["partition"]): (row["offset_min"], row["offset_max"] + 1) for row in spans.to_pylist()
    }
    requested = F.broadcast(spark.createDataFrame(record_ids))
    messages = read_ranges(spark, settings, ranges).join(requested, list(PLACE), "left_semi")
    return messages.select(*PLACE, "value").coalesce(spark.sparkContext.defaultParallelism).toArrow()
