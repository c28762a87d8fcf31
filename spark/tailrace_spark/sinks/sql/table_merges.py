"""The merges of all tables of a database: one for each target, and the search for the changes that it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered
from tailrace_spark.merge.batch_changes import BatchChanges, BatchChangesBuilder, gather
from tailrace_spark.merge.row_filter import RowFilters
from tailrace_spark.merge.truncation import TruncatedBatch
from tailrace_spark.sinks.sql.catalog import Catalog, TakenError
from tailrace_spark.sinks.sql.deferred import DeferredChange
from tailrace_spark.sinks.sql.layout import Target
from tailrace_spark.sinks.sql.merge import PreparedBatch, TableMerge
from tailrace_spark.sinks.state_store.engine import is_of_one_table, refuses_a_value, remedy, said
from tailrace_spark.sinks.state_store.state_table import chunks
from tailrace_spark.sinks.state_store.truncations import Truncations, load_all
from tailrace_spark.sinks.table_faults import is_of_table, reason_of

Mergeable = TypeVar("Mergeable", Delivered, DeferredChange)

_AT_A_TIME: Final = 200  # changes: so often another thread gets its turn


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

    def of(self, target: Target) -> TableMerge:
        """The merge into a target. Raises TableRefusedError where the filters of rows do not fit the table."""
        table_id = target.layout.definition.id
        merge = self._merges.get(table_id)
        if merge is None or merge.target is not target:
            merge = self._merges[table_id] = TableMerge(target, self._dialect, self._filters)
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
            target, stale = self._catalog.target(connection, table, announced)
            merge = self.of(target)
            if stale:
                merge.show_again(connection, stale, int(self._clock()))
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
        """Merge changes under a savepoint; where one of them is refused, quarters of them, until it stands alone.

        One in many is found in as many steps as by halves; where all are refused, it is a third fewer.
        """
        if not changes:
            return 0
        try:
            batch = gather(changes)
            with connection.begin_nested():
                return merge.merge(connection, batch, int(self._clock()))
        except Exception as error:
            if not _of_a_change(error):
                raise
            merge.reload()
            if len(changes) == 1:
                letters.append(DeadLetter(changes[0].record_id, refusal_of(error), changes[0].message))
                return 0
        parts = chunks(changes, -(-len(changes) // 4))
        return sum(self.merge_by_parts(connection, merge, part, letters, gather) for part in parts)


def refusal_of(error: Exception) -> str:
    """Why a table or a change is refused, and what to do about it; a text that every database takes."""
    if isinstance(error, DBAPIError | TakenError | DecodeError):
        return (said(error) + remedy(error)).replace("\0", "\ufffd")
    return reason_of(error)


def _of_a_change(error: Exception) -> bool:
    """Whether an exception may be about one of the merged changes, and not about the table."""
    return refuses_a_value(error) if isinstance(error, SQLAlchemyError) else is_of_table(error)
