"""The SQL sink: a SQLite file or a PostgreSQL database whose tables follow the source."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tailrace_common.secrets import redact
from tailrace_schemas.change import Op
from tailrace_schemas.errors import DecodeError, ServiceError, UnsupportedError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.protocol import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.sinks.sql_bulk import overwrite
from tailrace_spark.sinks.sql_catalog import DEAD_LETTERS, Catalog
from tailrace_spark.sinks.sql_engine import absent, open_engine, refuses_a_value, remedy, said
from tailrace_spark.sinks.sql_merge import TableMerge, gather

log = logging.getLogger("tailrace_spark")


class SqlSink:
    """Follows source tables in one database; see `Sink` for the promises, `sql_layout` for the tables.

    A micro-batch is one transaction. A change that the database refuses (U+0000 in PostgreSQL, a key too long for
    its index) goes to `tailrace_dead_letters`, as do those that cannot be merged yet; all others are merged.
    """

    def __init__(self, url: str, table: str = "{keyspace}_{table}") -> None:
        """`url` is SQLAlchemy's; `table` names a source table in the database. Connects when first used.

        Raises SettingsError for a URL of another database.
        """
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
                if not self._created:
                    self._catalog.create(connection)
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
        self._created = True
        return summary

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError when the database does not answer or refuses."""
        try:
            self._engine.connect().close()
        except SQLAlchemyError as error:
            raise ServiceError(f"sink {self._location}: {said(error)}{absent(self._engine)}") from error

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def _forget(self) -> None:
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
            merge = self._merges.get(table.id)
            if merge is None or merge.target is not target:
                merge = self._merges[table.id] = TableMerge(target, self._dialect)
            if stale:
                merge.show_again(connection, stale)
        return self._merges[changes[0].change.table.id]

    def _take(
        self, connection: sa.Connection, merge: TableMerge, changes: Sequence[Delivered], letters: list[DeadLetter]
    ) -> int:
        """Merge changes under a savepoint; where one of them is refused, halves of them, until it stands alone."""
        try:
            found = gather([_mergeable(one) for one in changes])
            with connection.begin_nested():
                return merge.merge(connection, found)
        except (DecodeError, DBAPIError) as error:
            if isinstance(error, DBAPIError) and not refuses_a_value(error):
                raise
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


def _mergeable(delivered: Delivered) -> Delivered:
    """The change itself; truncations are not merged yet, and say so."""
    if delivered.change.op is Op.TRUNCATE:
        raise UnsupportedError(f"{delivered.change.table}: truncation is not merged yet; its rows stay until deleted")
    return delivered
