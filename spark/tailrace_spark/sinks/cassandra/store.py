"""What a sink asks of a Cassandra cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from tailrace_spark.sinks.cassandra.cluster import Batch


class Store(Protocol):
    """What such sinks ask of a cluster (tailrace_spark.sinks.cassandra.cluster.CassandraStore, which see)."""

    def connect(self) -> None: ...

    def has_keyspace(self, keyspace: str) -> bool: ...

    def columns(self, keyspace: str, table: str) -> Mapping[str, str]: ...

    def identity(self, keyspace: str, table: str) -> tuple[UUID, str] | None: ...

    def fields(self, keyspace: str, user_type: str) -> Mapping[str, str]: ...

    def define(self, statement: str) -> None: ...

    def write(self, batches: Iterable[Batch]) -> None: ...

    def select(self, statement: str, values: Sequence[str | int] = ()) -> Sequence[tuple[Any, ...]]: ...

    def close(self) -> None: ...
