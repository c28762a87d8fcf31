"""What is known of one table's truncations, and up to where its rows were erased by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from tailrace_schemas.change import Deletion
from tailrace_spark.merge.truncation import absorb_truncations
from tailrace_spark.rowstate.codec import decode_truncations, encode_truncations
from tailrace_spark.rowstate.deletions import stronger
from tailrace_spark.rowstate.truncation import TruncationState, merge_truncations
from tailrace_spark.sinks.state_store.bulk import overwrite
from tailrace_spark.sinks.state_store.dialects import MYSQL, MYSQL_TABLE, STATE_BYTES
from tailrace_spark.sinks.state_store.tables import CATALOG

_MICROS: Final = 1_000_000
TRUNCATIONS: Final = sa.Table(
    "tailrace_truncations",
    CATALOG,
    sa.Column("table_id", sa.Text().with_variant(sa.String(36), MYSQL), primary_key=True),
    sa.Column("state", STATE_BYTES, nullable=False),
    sa.Column("erased", sa.BigInteger),
    **MYSQL_TABLE,
)


@dataclass(slots=True)
class Truncations:
    """Those of one table id. `erased`: what was taken from its rows and states, and whatever comes later loses."""

    table_id: UUID
    ring_delay: float
    known: TruncationState = field(default_factory=TruncationState)
    erased: Deletion | None = None

    def absorb(self, connection: sa.Connection, new: TruncationState, now: int | None) -> Deletion | None:
        """Store new truncations, and the floor up to which the caller erases now; None: it erases no further."""
        truncations, floor = absorb_truncations(self.known, new, self.erased, now, self.ring_delay)
        if floor is not None or truncations != self.known:
            self.known, self.erased = truncations, self.erased if floor is None else floor
            self._write(connection)
        return floor

    def note(self, connection: sa.Connection, new: TruncationState) -> None:
        """Store new truncations, and erase nothing yet. Raises ValueError for those of another table."""
        truncations = merge_truncations(self.known, new)
        if truncations != self.known:
            self.known = truncations
            self._write(connection)

    def covering(self) -> Deletion | None:
        """What hides rows at once, as far as hosts have told of it by now; a later one may let some show again."""
        return stronger(self.known.covering(self.ring_delay), self.erased)

    def load(self, connection: sa.Connection) -> None:
        """Read what is kept of this table."""
        query = sa.select(TRUNCATIONS.c.state, TRUNCATIONS.c.erased)
        row = connection.execute(query.where(TRUNCATIONS.c.table_id == str(self.table_id))).one_or_none()
        self.known = TruncationState() if row is None else decode_truncations(row.state)
        erased = None if row is None else row.erased
        self.erased = None if erased is None else Deletion(erased, erased // _MICROS)

    def _write(self, connection: sa.Connection) -> None:
        erased = None if self.erased is None else self.erased.written
        row = (str(self.table_id), encode_truncations(self.known), erased)
        overwrite(connection, TRUNCATIONS, ("table_id", "state", "erased"), [row])


@dataclass(slots=True)
class FoundTruncations(Truncations):
    """Of a task: what it finds is gathered in `new`, for the driver to store, and nothing is erased."""

    new: TruncationState = field(default_factory=TruncationState)

    def absorb(self, connection: sa.Connection, new: TruncationState, now: int | None) -> Deletion | None:
        """Gather truncations; the rows stay."""
        del now
        self.note(connection, new)
        return None

    def note(self, connection: sa.Connection, new: TruncationState) -> None:
        """Gather truncations."""
        del connection
        self.new = merge_truncations(self.new, new)
