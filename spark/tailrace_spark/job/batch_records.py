"""The records of a micro-batch on the driver, in parts of bounded bytes, and the pieces that a sink takes of them.

One job brings the heads of all records, their sizes, and the values of those that are small enough for all to fit.
The larger values are read from Kafka again, part by part, where a batch has any.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace_common.settings import Settings
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.jvm import jvm_of
from tailrace_spark.shaping import Shape
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.source.kafka import read_ranges

PLACE: Final = ("topic", "partition", "offset")
_IN_ORDER: Final = [(name, "ascending") for name in PLACE]
# Of the driver's memory: while Spark collects bytes it has them up to four times, in its tasks and on their way.
_SHARE_OF_MEMORY: Final = 8
_LEAST_BYTES: Final = 1 << 20
# Spark collects no results of more than 1 GiB unless it is told to, and Arrow sorts no column of more than 2 GiB.
_MOST_BYTES: Final = 1 << 29
# Large values stand together in one buffer of a task, which doubles while it grows: fewer bytes at a time.
_READS_OF_A_PART: Final = 4


def shaped(decoded: Iterable[Piece], read_back: ReadBack | None, shape: Shape | None) -> Iterable[Piece]:
    """Pieces with what the log leaves open, as the sink is to see them."""
    completed = None if read_back is None else read_back.added
    if shape is not None:
        return shape.shaped(decoded, completed)
    return decoded if completed is None else completed(decoded)


class MissingRecordsError(Exception):
    """Kafka has no longer what the batch was planned with."""


def part_bytes(spark: SparkSession, settings: Settings) -> int:
    """The most bytes of messages in a part: the setting, else an eighth of the driver's memory, 512 MiB at most."""
    if settings.stream.max_bytes_per_part is not None:
        return settings.stream.max_bytes_per_part
    share = int(jvm_of(spark).java.lang.Runtime.getRuntime().maxMemory()) // _SHARE_OF_MEMORY
    return min(_MOST_BYTES, max(_LEAST_BYTES, share))


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
