"""The SQL sink: a SQLite file or a PostgreSQL database whose tables follow the source."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tailrace_common.secrets import redact
from tailrace_schemas.errors import DecodeError, ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.protocol import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.sinks.sql_bulk import overwrite
from tailrace_spark.sinks.sql_catalog import DEAD_LETTERS, Catalog, Target
from tailrace_spark.sinks.sql_engine import absent, open_engine, refuses_a_value, remedy, said
from tailrace_spark.sinks.sql_merge import TableMerge, gather
from tailrace_spark.sinks.sql_truncations import Truncations

log = logging.getLogger("tailrace_spark")


class SqlSink:
    """Follows source tables in one database; see `Sink` for the promises, `sql_layout` for the tables.

    A micro-batch is one transaction. A change that the database refuses (U+0000 in PostgreSQL, a key too long for
    its index) goes to `tailrace_dead_letters`, as do those that cannot be merged yet; all others are merged.
    """

    def __init__(
        self,
        url: str,
        table: str = "{keyspace}_{table}",
        *,
        ring_delay: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`url` is SQLAlchemy's; `table` names a source table in the database. Connects when first used.

        `ring_delay`: within how many seconds all hosts know of a truncation. `clock` tells the seconds since the epoch
        by which what expires is gone. Raises SettingsError for a URL of another database.
        """
        self._ring_delay = ring_delay
        self._clock = clock
        self._location = redact(url)
        self._engine = open_engine(url)
        self._dialect: str = self._engine.dialect.name
        self._catalog = Catalog(self._engine.dialect, table)
        self._merges: dict[UUID, TableMerge] = {}
        self._created = False

    def write(self, pieces: Iterable[Piece]) -> Summary:
        """Take in one micro-batch. Raises ServiceError when the database does not answer or refuses all of it."""
        summary = Summary()
        try:
            with self._engine.begin() as connection:
                self._create(connection)
                for piece in pieces:
                    summary += self._piece(connection, piece)
        except SQLAlchemyError as error:
            self._forget()
            raise ServiceError(
                f"sink {self._location}: {said(error)}{remedy(error)}; the batch will be delivered again"
            ) from error
        except BaseException:
            self._forget()
            raise
        return summary

    def sweep(self) -> int:
        """Show again what has expired, and erase what truncations let go by now; how many rows that changed.

        Each batch does so for the tables that it has changes of. Raises ServiceError as `write` does.
        """
        try:
            with self._engine.begin() as connection:
                self._create(connection)
                now = int(self._clock())
                return sum(
                    self._merge_of(connection, one).sweep(connection, now) for one in self._catalog.all(connection)
                )
        except SQLAlchemyError as error:
            self._forget()
            raise ServiceError(f"sink {self._location}: {said(error)}{remedy(error)}; swept again later") from error

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError when the database does not answer or refuses."""
        try:
            self._engine.connect().close()
        except SQLAlchemyError as error:
            raise ServiceError(f"sink {self._location}: {said(error)}{absent(self._engine)}") from error

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def _create(self, connection: sa.Connection) -> None:
        if not self._created:
            self._catalog.create(connection)
        self._created = True

    def _merge_of(self, connection: sa.Connection, target: Target) -> TableMerge:
        table_id = target.layout.definition.id
        merge = self._merges.get(table_id)
        if merge is None or merge.target is not target:
            truncations = Truncations(table_id, self._ring_delay)
            truncations.load(connection)
            merge = self._merges[table_id] = TableMerge(target, self._dialect, truncations)
        return merge

    def _forget(self) -> None:
        self._created = False
        self._catalog.forget()
        self._merges.clear()

    def _piece(self, connection: sa.Connection, piece: Piece) -> Summary:
        letters = list(piece.dead_letters)
        by_table: dict[UUID, list[Delivered]] = {}
        for delivered in piece.changes:
            by_table.setdefault(delivered.change.table.id, []).append(delivered)
        rows = merged = 0
        for changes in by_table.values():
            merge = self._merge_for(connection, changes)
            refused = len(letters)
            rows += self._take(connection, merge, changes, letters)
            merged += len(changes) - (len(letters) - refused)
        self._bury(connection, letters)
        return Summary(merged, rows, len(letters))

    def _merge_for(self, connection: sa.Connection, changes: Sequence[Delivered]) -> TableMerge:
        """The merge for the table's newest definition; made, widened and shown again where that is news."""
        shapes: dict[int, tuple[Table, int]] = {
            id(one.change.table): (one.change.table, one.announced) for one in changes
        }
        for table, announced in shapes.values():
            target, stale = self._catalog.target(connection, table, announced)
            merge = self._merge_of(connection, target)
            if stale:
                merge.show_again(connection, stale, int(self._clock()))
        return self._merges[changes[0].change.table.id]

    def _take(
        self, connection: sa.Connection, merge: TableMerge, changes: Sequence[Delivered], letters: list[DeadLetter]
    ) -> int:
        """Merge changes under a savepoint; where one of them is refused, halves of them, until it stands alone."""
        try:
            found = gather(changes)
            with connection.begin_nested():
                return merge.merge(connection, found, int(self._clock()))
        except (DecodeError, DBAPIError) as error:
            if isinstance(error, DBAPIError) and not refuses_a_value(error):
                raise
            merge.reload(connection)
            if len(changes) == 1:
                letters.append(DeadLetter(changes[0].place, said(error)))
                return 0
        middle = len(changes) // 2
        return sum(self._take(connection, merge, half, letters) for half in (changes[:middle], changes[middle:]))

    def _bury(self, connection: sa.Connection, letters: Sequence[DeadLetter]) -> None:
        if not letters:
            return
        places = [(letter.place, letter.reason) for letter in letters]
        rows = [(p.topic, p.partition, p.offset, p.schema_id.hex(), reason) for p, reason in places]
        overwrite(connection, DEAD_LETTERS, ("topic", "partition", "offset", "schema_id", "reason"), rows)
        log.warning("%d records set aside in tailrace_dead_letters; the first: %s", len(rows), letters[0].reason)
