"""The sink that a [sink.NAME] names."""

from __future__ import annotations

from typing import Protocol

from tailrace_common.settings import LogTablesSinkSettings, SinkSettings
from tailrace_spark.sinks.cassandra import CassandraStore
from tailrace_spark.sinks.log_tables import LogTablesSink
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.sinks.sql import SqlSink


class ReachableSink(Sink, Protocol):
    """A sink that can be tried before anything is written."""

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError where the store does not answer or refuses."""


def open_sink(name: str, settings: SinkSettings, prefix: str, ring_delay: float = 0.0) -> ReachableSink:
    """The sink of [sink.NAME], for topics of a prefix; it connects when it is first used. Raises SettingsError.

    `ring_delay`: [generations] ring_delay_seconds, within which all hosts know of what one of them does.
    """
    if isinstance(settings, LogTablesSinkSettings):
        store = CassandraStore(settings, f"sink.{name}")
        return LogTablesSink(store, prefix, keyspace=settings.keyspace, ttl_seconds=settings.ttl_seconds)
    return SqlSink(settings.url.get_secret_value(), settings.table, ring_delay=ring_delay)
