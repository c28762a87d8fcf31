"""One copy of each change, of those that its replicas published: by digest, in the JVM."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_TAKEN: Final = "taken"
_IDENTITY: Final = "identity"
EVENT_TIME: Final = "event_time"
# What must stay as often as it came: records that are no changes, and truncations, which say the same to every
# partition. Digests have 16 bytes, these names more or less of them.
_ITS_OWN: Final = "digest IS NULL OR op = 'truncate'"


def one_copy(heads: DataFrame, seconds: float) -> DataFrame:
    """A stream of `tailrace_spark.source.kafka.with_head`, without copies that come within `seconds` of the first.

    The event time is the micro-batch's own (docs/contracts.md 6). So no record is older than the watermark, whatever
    its write time or Kafka's timestamp. A copy that comes later than that is passed on again. Keeps some 100 bytes of
    state for each change of the last `seconds`.
    """
    return (
        heads.withColumn(_TAKEN, F.current_timestamp())
        .withColumn(_IDENTITY, _identity())
        .withWatermark(_TAKEN, f"{round(seconds * 1000)} milliseconds")
        .dropDuplicatesWithinWatermark([_IDENTITY])
        .drop(_TAKEN, _IDENTITY)
    )


def one_copy_by_event_time(changes: DataFrame, delay: str) -> DataFrame:
    """A stream of changes with `event_time`, a timestamp of `written`, and its watermark, and without copies.

    Spark has one watermark in a query, so this one is the user's too: for windows of `event_time`, for instance. All
    copies of a change have one write time, so a copy is left out however late it comes. State does it for `delay`, such
    as "1 hour". After that, a copy is left out with all other changes that are older than the watermark. Records that
    are no changes have no event time, and are never late.
    """
    return (
        changes.withColumn(EVENT_TIME, F.timestamp_micros("written"))
        .withColumn(_IDENTITY, _identity())
        .withWatermark(EVENT_TIME, delay)
        .dropDuplicatesWithinWatermark([_IDENTITY])
        .drop(_IDENTITY)
    )


def _identity() -> Column:
    record_id = F.encode(F.concat_ws("/", "topic", "partition", "offset"), "UTF-8")
    return F.when(F.expr(_ITS_OWN), record_id).otherwise(F.col("digest"))
