"""Merges the pieces of a batch into a database, table by table; what one table is refused for holds up no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tailrace_common.backoff import Waits
from tailrace_schemas.change import Op
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.merge.by_table import group_by_table
from tailrace_spark.merge.definitions import newest_definition
from tailrace_spark.merge.purge_horizon import split
from tailrace_spark.merge.truncation import TruncatedBatch
from tailrace_spark.rowstate.truncation import EVERYTHING
from tailrace_spark.sinks.letters import Letters
from tailrace_spark.sinks.sql.deferred import DeferredChange, DeferredTables, deferred_change, deferred_erasure
from tailrace_spark.sinks.sql.merge import PreparedBatch
from tailrace_spark.sinks.sql.table_merges import TableMerges, refusal_of
from tailrace_spark.sinks.state_store.dialects import MYSQL
from tailrace_spark.sinks.state_store.engine import is_busy, is_of_one_table
from tailrace_spark.sinks.state_store.purge import Purges
from tailrace_spark.sinks.table_faults import is_of_table, reason_of, refusals_of

log = logging.getLogger("tailrace_spark")

WAITS: Final = Waits(1.0, 60.0)
"""How long a table that the database refuses is left alone."""

_BUSY_WAITS: Final = Waits(0.1, 0.5)
_BUSY_ATTEMPTS: Final = 4


@dataclass(frozen=True, slots=True)
class TableWait:
    """A table that the database refuses: why, when it is tried again (the clock's seconds), how often it did."""

    why: str = "kept by an earlier process"
    until: float = 0.0
    failures: int = 1


@dataclass(frozen=True, slots=True)
class PreparedPiece:
    """A piece as it is merged: by table its changes, and what was made of them ahead."""

    dead_letters: Sequence[DeadLetter]
    tables: Sequence[tuple[Sequence[Delivered], PreparedBatch | None]]


class PieceMerges:
    """Merges pieces in the caller's transactions. After a rollback, `forget` what the transaction had made.

    `waits` are the tables that the database refuses: their changes are deferred. `clock` tells the seconds since the
    epoch; `wait` passes some, before a busy database is asked again.
    """

    def __init__(
        self,
        merges: TableMerges,
        dialect: str,
        clock: Callable[[], float],
        wait: Callable[[float], None],
        letters: Letters,
    ) -> None:
        self.merges = merges
        self.held = DeferredTables()
        self.purges = Purges()
        self.waits: dict[UUID, TableWait] = {}
        self._dialect = dialect
        self._clock = clock
        self._wait = wait
        self._letters = letters

    def forget(self) -> None:
        """Read everything again from the database when it is next needed."""
        self.purges.forget()
        self.merges.forget()

    def defer(self, refused: Mapping[UUID, str]) -> None:
        """Defer the changes of these tables from now on, for these reasons, and try the tables again soon."""
        for table_id, why in refused.items():
            self.waits[table_id] = TableWait(why, self._clock() + WAITS.after(1))

    def read(self, piece: Piece) -> PreparedPiece:
        """The changes of a piece by table, merged with each other where nothing is in the way of that."""
        tables = group_by_table(piece.changes).values()
        return PreparedPiece(piece.dead_letters, [(changes, self.merges.prepare(changes)) for changes in tables])

    def merge(self, connection: sa.Connection, piece: PreparedPiece) -> Summary:
        """Merge a piece that was read, and put its dead letters."""
        letters = list(piece.dead_letters)
        summary = Summary()
        for changes, prepared in piece.tables:
            summary += self._table(connection, changes, letters, prepared)
        self._letters.put(letters)
        return summary + Summary(dead_letters=len(piece.dead_letters))

    def _table(
        self,
        connection: sa.Connection,
        changes: Sequence[Delivered],
        letters: list[DeadLetter],
        prepared: PreparedBatch | None,
    ) -> Summary:
        """Merge changes of one table, or keep them where the database refuses it for now."""
        table_id, refused = changes[0].change.table.id, list[DeadLetter]()
        rows = deferred = 0
        truncated = self.merges.truncations(connection, table_id).take(changes)
        # A truncation of everything took the deletions too that purging has forgotten.
        renewed = truncated.erased == EVERYTHING
        in_time, late = split(truncated.left, None if renewed else self.purges.purged_to(connection, table_id))
        if late:
            letters += late
            truncated, prepared = replace(truncated, left=in_time), None
        if renewed:
            self.purges.reset(connection, table_id)
        if table_id not in self.waits:
            run = partial(self.merges.merge, connection, changes, truncated, refused, prepared)
            rows, why = self.attempt(connection, refused, run)
            if why:
                self.defer({table_id: why})
        if table_id in self.waits:
            deferred = self._keep(connection, changes, truncated, refused, self.waits[table_id].why)
        letters += refused
        reasons = (
            {str(changes[0].change.table): self.waits[table_id].why} if deferred else refusals_of(changes, refused)
        )
        written = len(changes) - len(late) - len(refused) - deferred
        return Summary(written, rows, len(refused) + len(late), deferred, reasons)

    def attempt(
        self, connection: sa.Connection, letters: list[DeadLetter], run: Callable[[], int]
    ) -> tuple[int, str | None]:
        """What `run` gives, and None; or 0, and why the database refuses this table. A busy one is asked again."""
        failures = 0
        while True:
            letters.clear()
            try:
                with nullcontext() if self._dialect == MYSQL else connection.begin_nested():
                    return run(), None
            except Exception as error:
                busy = isinstance(error, DBAPIError) and is_busy(error)
                if not busy and not is_of_one_table(error):
                    raise
                self.forget()
                failures += 1
                if not busy or failures == _BUSY_ATTEMPTS:
                    letters.clear()
                    return 0, refusal_of(error)
            self._wait(_BUSY_WAITS.after(failures))

    def _keep(
        self,
        connection: sa.Connection,
        changes: Sequence[Delivered],
        truncated: TruncatedBatch,
        letters: list[DeadLetter],
        why: str,
    ) -> int:
        table, announced = newest_definition(changes)
        self.merges.truncations(connection, table.id).store(connection, truncated.truncations)
        deferred: list[DeferredChange] = []
        if truncated.erased is not None:
            self.held.erase(connection, table.id, truncated.erased)
            truncation = next(delivered for delivered in changes if delivered.change.op is Op.TRUNCATE)
            deferred.append(deferred_erasure(truncation.record_id, truncated.erased))
        for delivered in truncated.left:
            try:
                deferred.append(deferred_change(delivered))
            except Exception as error:
                if not is_of_table(error):
                    raise
                letters.append(DeadLetter(delivered.record_id, reason_of(error), delivered.message))
        self.held.keep(connection, table, announced, deferred, why, int(self._clock()))
        log.warning(
            "%s: deferred %d changes to tailrace_held_changes, other tables go on; will retry: %s",
            table,
            len(deferred),
            why,
        )
        return len(deferred)
