"""The type `log-tables`: tables like ScyllaDB's CDC log in a Cassandra or ScyllaDB cluster."""

from __future__ import annotations

from typing import Final

from tailrace_spark.sinks.cassandra.settings import LogTablesSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: LogTablesSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.cassandra.cluster import CassandraStore
    from tailrace_spark.sinks.cassandra.log.sink import LogTablesSink

    store = CassandraStore(settings, f"sink.{name}")
    return LogTablesSink(
        store, around.prefix, keyspace=settings.keyspace, ttl_seconds=settings.ttl_seconds,
        keep_dropped=settings.dropped_columns == "keep", streamed=settings.streamed == "write",
        lateness_ms=round(settings.lateness_seconds * 1000),
    )  # fmt: skip


LOG_TABLES: Final = SinkType(
    name="log-tables",
    settings=LogTablesSinkSettings,
    kinds=(Kind.CASSANDRA,),
    guarantee="Every change is a row of its table's log, whole updates together; a batch that comes again writes the "
    "same rows.",
    extra="spark",
    packages=("cassandra",),
    document="docs/log-tables.md",
    open=_open,
)
