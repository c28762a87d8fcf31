"""How many rows a second a core takes through each stage, by the CPU time that Java and its Python workers used."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from benchmarks.agent.processes import cpu_of
from tailrace_common.settings import Settings
from tailrace_common.topics import GenerationReader, SchemaReader
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.avro.frames import BODY_SQL
from tailrace_schemas.avro.frames import frame as frame_of
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.source.kafka import with_head
from tailrace_spark.source.kafka_options import java_options, table_topics, without_internal
from tailrace_spark.streams.assign import assigned
from tailrace_spark.streams.lookup import StreamTable


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stage took for so many rows: seconds on the clock, and of CPU."""

    rows: int
    seconds: float
    cpu: float

    @property
    def per_core(self) -> float:
        """Rows a second of CPU."""
        return self.rows / self.cpu

    @property
    def rate(self) -> float:
        """Rows a second, as it ran."""
        return self.rows / self.seconds


def measured(rows: int, run: Callable[[], object]) -> Cost:
    """The cost of a run; all of this process, of its children and of theirs."""
    before, began = cpu_so_far(), time.monotonic()
    run()
    return Cost(rows, time.monotonic() - began, cpu_so_far() - before)


def everything(spark: SparkSession, settings: Settings) -> DataFrame:
    """The records of all tables, as a batch: the columns of `read_messages`."""
    prefix = settings.topics.prefix
    options = {
        "subscribePattern": without_internal(table_topics(prefix), prefix),
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
        **java_options(settings.kafka.reveal(), {}),
        "kafka.isolation.level": "read_committed",
    }
    found = spark.read.format("kafka").options(**options).load()
    return found.where("value IS NOT NULL").select("topic", "partition", "offset", "timestamp", "value")


def stages(spark: SparkSession, settings: Settings) -> Mapping[str, DataFrame]:
    """What each stage makes of all records; each is run by itself."""
    kafka, prefix = settings.kafka.reveal(), settings.topics.prefix
    with GenerationReader.open(kafka, internal_topic(prefix, Internal.GENERATIONS)) as generations:
        table = StreamTable.of_published(generations.refresh(), generations.known_until)
    with SchemaReader(kafka, prefix) as schemas:
        schemas.refresh()
        entries = {key: entry for key, entry in schemas.items() if entry.part == "value"}
    messages = everything(spark, settings)
    heads = with_head(messages)
    streams = assigned(heads, table, prefix)
    return {
        "source": messages,
        "source, head": heads,
        "source, decoded by the JVM": decoded_by_java(messages, entries),
        "source, decoded by Python": decoded_by_python(messages, entries),
        "source, head, stream id": streams,
        "source, decoded by the JVM, stream id": decoded_by_java(streams, entries),
    }


def decoded_by_java(frame: DataFrame, entries: Mapping[bytes, SchemaEntry]) -> DataFrame:
    """One struct column for each writer schema, null but for its own records: all in one job."""
    body = F.expr(BODY_SQL)

    def of(key: bytes, entry: SchemaEntry) -> Column:
        mine = F.expr(f"startswith(value, X'{frame_of(key).hex()}')")
        return F.when(mine, from_avro(body, entry.avro, {"mode": "PERMISSIVE"})).alias(f"t{key.hex()}")

    kept = [name for name in frame.columns if name != "value"]
    return frame.select(*kept, *[of(key, entry) for key, entry in entries.items()])


def decoded_by_python(frame: DataFrame, entries: Mapping[bytes, SchemaEntry]) -> DataFrame:
    """Changes as the sinks take them, made by our decoder in the executors' Python."""
    return frame.mapInArrow(Decoding(entries), "changes bigint")


class Decoding:
    """Decodes each record of Arrow batches, and counts."""

    def __init__(self, entries: Mapping[bytes, SchemaEntry]) -> None:
        self._entries = dict(entries)

    def __call__(self, batches: Any) -> Any:
        import pyarrow as pa

        from tailrace_schemas.avro import decode

        for batch in batches:
            count = sum(decode(value, self._entries) is not None for value in batch.column("value").to_pylist())
            yield pa.RecordBatch.from_pydict({"changes": pa.array([count], pa.int64())})


_TASKS: Final = Path("/proc")


def cpu_so_far() -> float:
    """Seconds of CPU that this process and all that descend from it have used so far."""
    parents: dict[int, list[int]] = {}
    for entry in _TASKS.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text("utf-8", "replace")
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    left, total = [os.getpid()], 0.0
    while left:
        pid = left.pop()
        try:
            total += cpu_of(pid)
        except OSError:
            continue
        left += parents.get(pid, [])
    return total
