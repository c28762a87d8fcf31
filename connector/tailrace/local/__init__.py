"""Real Cassandra, Kafka and schema registry as child processes of this machine, for the demo and the tests."""

from __future__ import annotations

from tailrace.local.cassandra import CassandraSettings, LocalCassandra
from tailrace.local.kafka import KafkaSettings, LocalKafka
from tailrace.local.registry import LocalRegistry, RegistrySettings
from tailrace.local.services import Services

__all__ = [
    "CassandraSettings",
    "KafkaSettings",
    "LocalCassandra",
    "LocalKafka",
    "LocalRegistry",
    "RegistrySettings",
    "Services",
]
