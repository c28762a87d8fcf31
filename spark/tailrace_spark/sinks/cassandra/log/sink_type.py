"""The type `log-tables`: tables like ScyllaDB's CDC log in a Cassandra or ScyllaDB cluster."""

from __future__ import annotations

from typing import Final

from tailrace_spark.sinks.cassandra.settings import LogTablesSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: LogTablesSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.cassandra.cluster import CassandraStore
    from tailrace_spark.sinks.cassandra.log.sink import LogOpener

    opener = LogOpener(name, settings, around.letters)
    return opener.sink(CassandraStore(settings, f"sink.{name}"), opener)


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
