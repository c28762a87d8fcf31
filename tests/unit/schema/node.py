"""A node's tables and log in memory, and an agent's schema of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.history.records import HistoryRecord
from tailrace.schema.live import LiveSchema
from tailrace.state import Resume
from tailrace_schemas.table import Table
from tests.support.capture import MemoryLog
from tests.support.kafka import Faults
from tests.support.schema import MemorySchema, MemorySchemaLog
from tests.unit.tables import table

ORDERS = table({"id": "text"}, {}, {}, {"v": "int"}, keyspace="shop", name="orders")


@dataclass
class Node:
    """A node's tables and log."""

    tables: list[Table] = field(default_factory=lambda: [ORDERS])
    log: MemoryLog = field(default_factory=MemoryLog)

    def schema(self, *known: HistoryRecord, written: int = 0) -> LiveSchema:
        """A fresh agent's schema, begun with what Kafka has."""
        schema = LiveSchema(MemorySchema(self.tables, written=written), MemorySchemaLog(self.log, Faults()))
        schema.learn()
        schema.begin(known, Resume(), 1)
        return schema

    def follow(self, schema: LiveSchema, segment: int, payloads: Sequence[bytes], *, final: bool = True) -> None:
        """Log more, and let an agent's schema read it."""
        self.log.append(segment, payloads, final)
        schema.follow(None)


def begun(tables: Sequence[Table] = (ORDERS,)) -> tuple[Node, LiveSchema]:
    """A node with these tables, and the schema of its first agent."""
    node = Node([*tables])
    return node, node.schema()
