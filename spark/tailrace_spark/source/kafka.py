"""Kafka's records as a DataFrame: the head of every change read in the JVM, whatever table it is of."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from typing import Final
from uuid import UUID

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from tailrace_common.settings import Settings
from tailrace_common.tracing.spans import TRACEPARENT
from tailrace_schemas.avro import PREFIX_SCHEMA
from tailrace_schemas.avro.frames import BODY_SQL, SCHEMA_ID_SQL
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition, table_topic
from tailrace_spark.batch.delivery import by_topic, offsets_to_json
from tailrace_spark.jvm import jvm_of
from tailrace_spark.source.kafka_options import (
    java_options,
    table_topics,
    widen_redaction,
    without_internal,
    without_topics,
)

# SPARK-55271 (4.1.0 to 4.1.2): of a batch that is delivered again after a restart, the Kafka source's second version
# cannot report metrics, and the query dies of it once the batch is done. The first version has no metrics, and the
# same offsets, so that a checkpoint serves both.
_WITH_THAT_BUG: Final = frozenset({"4.1.0", "4.1.1", "4.1.2"})
_VERSION_TWO: Final = "spark.sql.streaming.disabledV2MicroBatchReaders"
_KAFKA: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"

# Spark asks for a partition's offsets after each fetch, on the connection on which the consumer has already begun the
# next one: where nothing more is there the broker would answer only after half a second, for each partition and batch.
_PROMPT: Final = {"kafka.fetch.max.wait.ms": "1"}

_NO_SOURCE: Final = (
    "this session cannot read Kafka. Where its jars are missing, start it with what `tailrace stream --jars` prints as "
    "spark-submit's --jars, or by tailrace_spark.job.session.spark_session"
)

# `get`: without such a header null, where an index out of bounds is an error in ANSI mode.
_TRACEPARENT_SQL: Final = f"CAST(get(filter(headers, h -> h.key = '{TRACEPARENT}'), 0).value AS STRING)"

PERMISSIVE = {"mode": "PERMISSIVE"}
"""A record that is no Avro of ours gives nulls; it must not stop the others."""
_TAKEN: Final = "taken"
_IDENTITY: Final = "identity"
EVENT_TIME: Final = "event_time"
# What must stay as often as it came: records that are no changes, and truncations, which say the same to every
# partition. Digests have 16 bytes, these names more or less of them.
_ITS_OWN: Final = "digest IS NULL OR op = 'truncate'"


def read_messages(
    spark: SparkSession,
    settings: Settings,
    topics: str | None = None,
    options: Mapping[str, str] | None = None,
    without: Collection[str] = (),
) -> DataFrame:
    """A stream of Kafka's records: topic, partition, offset, timestamp, value.

    `topics` is a Java regular expression (default: [stream] topics, else every table's topic under the prefix). The
    agents' own topics under the prefix, such as `.schemas`, are left out even if it matches them, and so are those of
    `without`. Topics that appear later are read from their beginning. `options` are those of Spark's Kafka source, such
    as startingTimestamp or maxOffsetsPerTrigger, and win over [stream]. Only committed transactions are read, and no
    records without a value. With includeHeaders there is a column `traceparent`: that header of a record, or null.

    The session's plans hide secrets of the options from then on. On Spark 4.1.0 to 4.1.2 it reads Kafka by the first
    version of the source, whose restarts are sound. Nothing else of it changes. Raises SettingsError where it has no
    such source.
    """
    _keep_to_version_one(spark)
    widen_redaction(spark)
    stream = settings.stream
    chosen = {
        "subscribePattern": without_topics(_pattern(settings, topics), without),
        "startingOffsets": stream.starting_offsets,
        "failOnDataLoss": str(stream.fail_on_data_loss).lower(),
        "maxOffsetsPerTrigger": str(stream.max_offsets_per_trigger),
        **_PROMPT,
        **java_options(settings.kafka.reveal(), stream.kafka.reveal()),
        **(options or {}),
        "kafka.isolation.level": "read_committed",
    }
    try:
        records = spark.readStream.format("kafka").options(**chosen).load()
    except AnalysisException as error:
        raise SettingsError(f"{_NO_SOURCE}: {str(error).partition(chr(10))[0]}") from error
    changes = records.where("value IS NOT NULL")  # else it is there for its transaction's mark (docs/contracts.md 4)
    names = [F.expr(_TRACEPARENT_SQL).alias(TRACEPARENT)] if "headers" in records.columns else []
    return changes.select("topic", "partition", "offset", "timestamp", "value", *names)


def reads_topic(spark: SparkSession, settings: Settings) -> Callable[[str], bool]:
    """A predicate of topics: whether `read_messages` reads it, as Java's regular expressions match."""
    pattern = jvm_of(spark).java.util.regex.Pattern.compile(_pattern(settings))
    return lambda topic: bool(pattern.matcher(topic).matches())


def reads_table(spark: SparkSession, settings: Settings) -> Callable[[Table], bool]:
    """A predicate of tables: whether `read_messages` reads a table's topic, by names alone.

    A topic may have a suffix (contracts.md 4).
    """
    prefix, patterns = settings.topics.prefix, cache(partial(reads_topic, spark, settings))

    @cache
    def reads(keyspace: str, name: str, table_id: UUID) -> bool:
        plain = table_topic(prefix, keyspace, name, table_id)
        return any(map(patterns(), (plain, table_topic(prefix, keyspace, name, table_id, (plain,)))))

    return lambda table: reads(table.keyspace, table.name, table.id)


def _pattern(settings: Settings, topics: str | None = None) -> str:
    prefix = settings.topics.prefix
    return without_internal(topics or settings.stream.topics or table_topics(prefix), prefix)


def read_some(
    spark: SparkSession, settings: Settings, partition: KafkaPartition, start: int, records: int
) -> DataFrame:
    """The columns of `read_messages` for up to so many committed records of one partition, from an offset on, now."""
    return _read(spark, settings, {partition: start}, "latest").limit(records)


def read_ranges(spark: SparkSession, settings: Settings, ranges: Mapping[KafkaPartition, tuple[int, int]]) -> DataFrame:
    """The columns of `read_messages` for the committed records of partitions, each from an offset to behind the last.

    Where Kafka has deleted some of them the query fails.
    """
    starts, ends = ({partition: bounds[side] for partition, bounds in ranges.items()} for side in (0, 1))
    return _read(spark, settings, starts, offsets_to_json(ends))


def _read(spark: SparkSession, settings: Settings, starts: Mapping[KafkaPartition, int], ends: str) -> DataFrame:
    chosen = {
        "assign": json.dumps({topic: [*map(int, partitions)] for topic, partitions in by_topic(starts).items()}),
        "startingOffsets": offsets_to_json(starts),
        "endingOffsets": ends,
        "failOnDataLoss": "true",
        **_PROMPT,
        **java_options(settings.kafka.reveal(), settings.stream.kafka.reveal()),
        "kafka.isolation.level": "read_committed",
    }
    messages = spark.read.format("kafka").options(**chosen).load().where("value IS NOT NULL")
    return messages.select("topic", "partition", "offset", "timestamp", "value")


def with_head(messages: DataFrame) -> DataFrame:
    """The records with their schema's id and the first six fields of the change (docs/contracts.md 3), else nulls.

    A column `traceparent` stays.
    """
    head = messages.withColumn("head", from_avro(F.expr(BODY_SQL), PREFIX_SCHEMA, PERMISSIVE))
    return head.select(
        *[F.col(f"head.{name}").alias(name) for name in ("op", "token", "written", "ttl", "expires", "digest")],
        "topic",
        "partition",
        "offset",
        F.expr(SCHEMA_ID_SQL).alias("schema_id"),
        F.unix_millis("timestamp").alias("published"),
        "value",
        *[name for name in messages.columns if name == TRACEPARENT],
    )


def _keep_to_version_one(spark: SparkSession) -> None:
    """Add to this session's list of sources that are read by their first version, where Spark has that bug.

    Spark reads the list when a query starts, after the caller has the DataFrame: no narrower way is left. It concerns
    other streams of Kafka in this one session alone, which lose the source's metrics and nothing else.
    """
    disabled = (spark.conf.get(_VERSION_TWO, "") or "").split(",")
    if spark.version in _WITH_THAT_BUG and _KAFKA not in disabled:
        spark.conf.set(_VERSION_TWO, ",".join(filter(None, [*disabled, _KAFKA])))


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
