"""The types `cassandra`, the source's tables in another cluster, and `log-tables`, ScyllaDB's log of their changes."""

from __future__ import annotations

from typing import Final

from tailrace_spark.sinks.cassandra.settings import CassandraSinkSettings, LogTablesSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: CassandraSinkSettings | LogTablesSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.cassandra.log.sink import LogTablesSink
    from tailrace_spark.sinks.cassandra.sink_base import SinkOpener
    from tailrace_spark.sinks.cassandra.tables import CassandraTablesSink

    kind = LogTablesSink if isinstance(settings, LogTablesSinkSettings) else CassandraTablesSink
    return SinkOpener(kind, name, settings, around.letters).sink()


CASSANDRA: Final = SinkType(
    name="cassandra",
    settings=CassandraSinkSettings,
    kinds=(Kind.CASSANDRA,),
    guarantee="Each change is written with its own write times and TTLs: in any order and however often, a table "
    "reads as SELECT reads the source.",
    extra="spark",
    packages=("cassandra",),
    document="docs/sinks/cassandra.md",
    open=_open,
    where="contact_points",
)


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
