"""Merges the pieces of a batch into a database, table by table; what one table is refused for holds up no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tailrace_common.backoff import Waits
from tailrace_schemas.change import Op
from tailrace_schemas.errors import DecodeError, ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.merge.batch_changes import BatchChanges, BatchChangesBuilder, TruncatedBatch, gather, group_by_table
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.merge.table_record import newest_definition, split
from tailrace_spark.rowstate.truncation import EVERYTHING
from tailrace_spark.sinks.letters import Letters
from tailrace_spark.sinks.sql.catalog import Catalog, TakenError
from tailrace_spark.sinks.sql.deferred import DeferredChange, DeferredTables, deferred_change, deferred_erasure
from tailrace_spark.sinks.sql.layout import LayoutTables
from tailrace_spark.sinks.sql.merge import PreparedBatch, TableMerge
from tailrace_spark.sinks.state_store.engine import is_of_one_table, may_try_again, refuses_a_value, remedy, said
from tailrace_spark.sinks.state_store.fences import TableTurns
from tailrace_spark.sinks.state_store.state_table import Purges, Truncations, chunks, load_all
from tailrace_spark.sinks.state_store.tables import MYSQL
from tailrace_spark.sinks.table_faults import is_of_table, reason_of, refusals_of

Mergeable = TypeVar("Mergeable", Delivered, DeferredChange)

_AT_A_TIME: Final = 200  # changes: so often another thread gets its turn
log = logging.getLogger("tailrace_spark")

WAITS: Final = Waits(1.0, 60.0)
"""How long a table that the database refuses is left alone."""

_BUSY_WAITS: Final = Waits(0.1, 0.5)
_BUSY_ATTEMPTS: Final = 4


class TableMerges:
    """Merges changes in the caller's transaction. After a rollback, `forget` what the transaction had made."""

    def __init__(
        self,
        catalog: Catalog,
        dialect: str,
        ring_delay: float,
        clock: Callable[[], float],
    ) -> None:
        """`ring_delay`: see SqlSink. `clock` tells the seconds since the epoch at which rows are looked at."""
        self._catalog = catalog
        self._dialect = dialect
        self._ring_delay = ring_delay
        self._clock = clock
        self._filters: RowFilters = ()
        self._merges: dict[UUID, TableMerge] = {}
        self._truncations: dict[UUID, Truncations] | None = None
        self.turns = TableTurns()

    def filter_rows(self, filters: RowFilters) -> None:
        """Show rows from now on of which these hold."""
        self._filters = filters
        self._merges.clear()

    def forget(self) -> None:
        """Read everything again from the database when it is next needed."""
        self._catalog.forget()
        self._merges.clear()
        self._truncations = None

    def truncations(self, connection: sa.Connection, table_id: UUID) -> Truncations:
        """What is known of a table's truncations."""
        return self._all_truncations(connection).setdefault(table_id, Truncations(table_id, self._ring_delay))

    def truncated(self, connection: sa.Connection) -> Callable[[Table], bool]:
        """Whether a table has truncations, by what merging knows of them."""
        truncations = self._all_truncations(connection)
        return lambda table: table.id in truncations and bool(truncations[table.id].known.statements)

    def _all_truncations(self, connection: sa.Connection) -> dict[UUID, Truncations]:
        if self._truncations is None:
            self._truncations = load_all(connection, self._ring_delay)
        return self._truncations

    def of(self, tables: LayoutTables) -> TableMerge:
        """The merge into a layout's tables. Raises TableRefusedError where the filters of rows do not fit the table."""
        table_id = tables.layout.definition.id
        merge = self._merges.get(table_id)
        if merge is None or merge.tables is not tables:
            merge = self._merges[table_id] = TableMerge(tables, self._dialect, self._filters)
        return merge

    def prepare(self, changes: Sequence[Delivered]) -> PreparedBatch | None:
        """Compute what needs no database of changes of one table, while it works on those before; None: impossible."""
        table_id = changes[0].change.table.id
        merge, truncations = self._merges.get(table_id), (self._truncations or {}).get(table_id)
        if merge is None or truncations is None:
            return None
        builder = BatchChangesBuilder()
        try:
            truncated = truncations.take(changes)
            for chunk in chunks(truncated.left, _AT_A_TIME):
                builder.add(chunk)
            return merge.prepare(builder.build(), truncated.truncations, int(self._clock()))
        except Exception as error:
            if not is_of_one_table(error):
                raise
            return None  # merging the changes finds the one that it is about

    def merge(
        self,
        connection: sa.Connection,
        changes: Sequence[Delivered],
        truncated: TruncatedBatch,
        letters: list[DeadLetter],
        prepared: PreparedBatch | None,
    ) -> int:
        """Merge what truncations leave of changes of one table; how many rows changed.

        `letters` gets those that the database refuses.
        """
        table = changes[0].change.table
        shapes = {id(delivered.change.table): (delivered.change.table, delivered.announced) for delivered in changes}
        if self._catalog.closed(connection, table, max(announced for _, announced in shapes.values())):
            return 0
        merge = self.by_definitions(connection, shapes.values())
        # After the DDL, around which MySQL commits: what is stored of truncations is erased in the same transaction.
        truncations = self.truncations(connection, table.id)
        truncations.store(connection, truncated.truncations)
        erased = 0 if truncated.erased is None else merge.erase(connection, truncated.erased, int(self._clock()))
        if prepared is not None and prepared.merge is merge and prepared.truncations == truncated.truncations:
            try:
                with connection.begin_nested():
                    return erased + merge.merge(connection, prepared.batch, prepared.now, prepared.new)
            except Exception as error:
                if not _of_a_change(error):
                    raise
                merge.reload()
        return erased + self.merge_by_parts(connection, merge, truncated.left, letters, gather)

    def by_definitions(self, connection: sa.Connection, definitions: Iterable[tuple[Table, int]]) -> TableMerge:
        """The merge for the newest of a table's definitions, given with when each was announced.

        Its tables are made, widened and shown again where a definition is new.
        """
        merge: TableMerge | None = None
        for table, announced in definitions:
            tables, stale = self._catalog.follow(connection, table, announced)
            merge = self.of(tables)
            if self._dialect == MYSQL and self.turns.take(connection, table.id):  # DDL has ended the turn
                raise ServiceError(f"{table}: a replay or a repair has written it meanwhile")
            if stale:
                with connection.begin_nested():  # MySQL has none around it, for DDL would end that
                    merge.show_again(connection, stale, int(self._clock()))
                    merge = self.of(self._catalog.note_shown(connection, tables))
        if merge is None:
            raise ValueError("no definition to merge by")
        return merge

    def merge_by_parts(
        self,
        connection: sa.Connection,
        merge: TableMerge,
        changes: Sequence[Mergeable],
        letters: list[DeadLetter],
        gather: Callable[[Sequence[Mergeable]], BatchChanges],
    ) -> int:
        """Merge changes; how many rows changed. `letters` gets those that are refused."""

        def merged(some: Sequence[Mergeable]) -> int:
            try:
                return merge.merge(connection, gather(some), int(self._clock()))
            except Exception:
                merge.reload()
                raise

        return by_parts(connection, changes, letters, merged)


def by_parts(
    connection: sa.Connection,
    changes: Sequence[Mergeable],
    letters: list[DeadLetter],
    write: Callable[[Sequence[Mergeable]], int],
) -> int:
    """Write changes under a savepoint; where one of them is refused, quarters of them, until it stands alone.

    One in many is found in as many steps as by halves; where all are refused, it is a third fewer.
    """
    if not changes:
        return 0
    try:
        with connection.begin_nested():
            return write(changes)
    except Exception as error:
        if not _of_a_change(error):
            raise
        if len(changes) == 1:
            letters.append(DeadLetter(changes[0].record_id, refusal_of(error), changes[0].message))
            return 0
    return sum(by_parts(connection, chunk, letters, write) for chunk in chunks(changes, -(-len(changes) // 4)))


def refusal_of(error: Exception) -> str:
    """Why a table or a change is refused, and what to do about it; a text that every database takes."""
    if isinstance(error, DBAPIError | TakenError | DecodeError):
        return (said(error) + remedy(error)).replace("\0", "\ufffd")
    return reason_of(error)


def _of_a_change(error: Exception) -> bool:
    """Whether an exception may be about one of the merged changes, and not about the table."""
    return refuses_a_value(error) if isinstance(error, SQLAlchemyError) else is_of_table(error)


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
        self.deferred = DeferredTables()
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

    def take_turn(self, connection: sa.Connection, table_id: UUID) -> None:
        """Wait until the transaction may read and write a table. What was known is forgotten if another has had it."""
        if self.merges.turns.take(connection, table_id):
            self.forget()

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
        self.take_turn(connection, table_id)
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
                busy = isinstance(error, DBAPIError) and may_try_again(connection, error)
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
        keep = partial(self.deferred.keep, connection, table, announced, why=why, now=int(self._clock()))
        deferred = 0
        if truncated.erased is not None:
            self.deferred.erase(connection, table.id, truncated.erased)
            truncation = next(delivered for delivered in changes if delivered.change.op is Op.TRUNCATE)
            deferred += keep([deferred_erasure(truncation.record_id, truncated.erased)])
        deferred += by_parts(
            connection, truncated.left, letters, lambda some: keep([deferred_change(delivered) for delivered in some])
        )
        log.warning(
            "%s: deferred %d changes to tailrace_deferred_changes, other tables go on; will retry: %s",
            table,
            deferred,
            why,
        )
        return deferred
