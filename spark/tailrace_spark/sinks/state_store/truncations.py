"""What is known of one table's truncations, in the database in which its rows' states are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.merge.truncation import TruncatedBatch, truncate_batch
from tailrace_spark.rowstate.codec import decode_truncations, encode_truncations
from tailrace_spark.rowstate.truncation import TruncationState
from tailrace_spark.sinks.state_store.bulk import overwrite
from tailrace_spark.sinks.state_store.dialects import MYSQL, MYSQL_TABLE, STATE_BYTES
from tailrace_spark.sinks.state_store.tables import CATALOG

TRUNCATIONS: Final = sa.Table(
    "tailrace_truncations",
    CATALOG,
    sa.Column("table_id", sa.Text().with_variant(sa.String(36), MYSQL), primary_key=True),
    sa.Column("state", STATE_BYTES, nullable=False),
    **MYSQL_TABLE,
)


@dataclass(slots=True)
class Truncations:
    """Those of one table id; `ring_delay` in seconds."""

    table_id: UUID
    ring_delay: float
    known: TruncationState = field(default_factory=TruncationState)

    def take(self, changes: Sequence[Delivered]) -> TruncatedBatch:
        """What truncations leave of a batch's changes; nothing is stored of them yet."""
        return truncate_batch(self.known, changes, self.ring_delay)

    def store(self, connection: sa.Connection, truncations: TruncationState) -> None:
        """Store what a batch brought, in the transaction that erases what it erases."""
        if truncations != self.known:
            row = (str(self.table_id), encode_truncations(truncations))
            overwrite(connection, TRUNCATIONS, ("table_id", "state"), [row])
            self.known = truncations

    def load(self, connection: sa.Connection) -> None:
        """Read what is kept of this table."""
        query = sa.select(TRUNCATIONS.c.state).where(TRUNCATIONS.c.table_id == str(self.table_id))
        row = connection.execute(query).one_or_none()
        self.known = TruncationState() if row is None else decode_truncations(row.state)


def load_all(connection: sa.Connection, ring_delay: float) -> dict[UUID, Truncations]:
    """What is kept of all tables of which something is."""
    rows = connection.execute(sa.select(TRUNCATIONS)).all()
    ids = [UUID(row.table_id) for row in rows]
    states = [decode_truncations(row.state) for row in rows]
    return {table_id: Truncations(table_id, ring_delay, state) for table_id, state in zip(ids, states, strict=True)}
