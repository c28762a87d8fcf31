"""The type `cassandra`: the source's tables in another Cassandra cluster, write times and TTLs included."""

from __future__ import annotations

from typing import Final

from tailrace_spark.sinks.cassandra.settings import CassandraSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings


def _open(name: str, settings: CassandraSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.cassandra.cluster import CassandraStore
    from tailrace_spark.sinks.cassandra.tables import TablesOpener

    opener = TablesOpener(name, settings, around.letters)
    return opener.sink(CassandraStore(settings, f"sink.{name}"), opener)


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
