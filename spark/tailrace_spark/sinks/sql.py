"""The SQL sink: a SQLite file or a PostgreSQL database whose tables follow the source."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from tailrace_common.secrets import redact
from tailrace_schemas.change import Op
from tailrace_schemas.errors import DecodeError, ServiceError, SettingsError, UnsupportedError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.protocol import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.sinks.sql_catalog import DEAD_LETTERS, Catalog, overwrite
from tailrace_spark.sinks.sql_merge import TableMerge, gather
from tailrace_spark.sinks.sql_types import POSTGRESQL, SQLITE

log = logging.getLogger("tailrace_spark")

_BUSY_SECONDS: Final = 30


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
        try:
            parsed = sa.make_url(url)
        except SQLAlchemyError as error:
            raise SettingsError(f"sink url {self._location}: {error}") from None
        if parsed.get_backend_name() == POSTGRESQL and parsed.drivername == POSTGRESQL:
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() not in (SQLITE, POSTGRESQL):
            raise SettingsError(f"sink url {self._location}: only sqlite:/// and postgresql:// are written")
        self._engine = sa.create_engine(parsed, **_engine_options(parsed))
        self._dialect: str = self._engine.dialect.name
        if self._dialect == SQLITE:
            _transactional(self._engine)
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
                f"sink {self._location}: {_said(error)}{_remedy(error)}; the batch will be delivered again"
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
            raise ServiceError(f"sink {self._location}: {_said(error)}{self._absent()}") from error

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def _absent(self) -> str:
        """That a SQLite file's directory is not there, which SQLite calls `unable to open database file`."""
        file = self._engine.url.database
        if self._dialect != SQLITE or not file or (directory := Path(file).absolute().parent).is_dir():
            return ""
        return f": {directory} is no directory"

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
            if isinstance(error, DBAPIError) and not _refuses_a_value(error):
                raise
            if len(changes) == 1:
                letters.append(DeadLetter(changes[0].place, _said(error)))
                return 0
        middle = len(changes) // 2
        return sum(self._take(connection, merge, half, letters) for half in (changes[:middle], changes[middle:]))

    def _bury(self, connection: sa.Connection, letters: Sequence[DeadLetter]) -> None:
        if not letters:
            return
        rows = [
            {
                "topic": letter.place.topic,
                "partition": letter.place.partition,
                "offset": letter.place.offset,
                "schema_id": letter.place.schema_id.hex(),
                "reason": letter.reason,
            }
            for letter in letters
        ]
        connection.execute(overwrite(DEAD_LETTERS, self._dialect), rows)
        log.warning("%d records set aside in tailrace_dead_letters; the first: %s", len(rows), letters[0].reason)


def _mergeable(delivered: Delivered) -> Delivered:
    """The change itself; truncations are not merged yet, and say so."""
    if delivered.change.op is Op.TRUNCATE:
        raise UnsupportedError(f"{delivered.change.table}: truncation is not merged yet; its rows stay until deleted")
    return delivered


def _said(error: BaseException) -> str:
    """What the database or decoder said, in one line and without the statement's parameters: they are data."""
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(origin).split())[:500]


def _remedy(error: BaseException) -> str:
    """What to do where the database refused to make, widen or find a table; empty for all else.

    PostgreSQL tells by SQLSTATE (class 42, and 2BP01 where something depends on it), SQLite in words only.
    """
    state, said = str(getattr(getattr(error, "orig", None), "sqlstate", None) or ""), _said(error).lower()
    if state == "42P07" or "already exists" in said or "already another table or index" in said:
        return ": drop or rename that, or give this sink's tables other names by `table` in its settings"
    if state == "42501" or "readonly" in said or "read-only" in said:
        return ": let this user make and alter tables there"
    if state == "2BP01":
        return ": drop what was built on it, and make that anew afterwards"
    if state.startswith("42") or said.startswith(("no such", "duplicate column", "object name reserved")):
        return ": the sink's tables are not as tailrace_tables says; undo what changed them, or start over empty"
    return ""


def _refuses_a_value(error: DBAPIError) -> bool:
    """Whether the database refuses these values, rather than being out of order itself.

    PostgreSQL says "program limit exceeded" (class 54) of a key too long for an index; psycopg counts that as
    operational.
    """
    state = getattr(error.orig, "sqlstate", None) or ""
    return isinstance(error, DataError | IntegrityError) or (
        isinstance(error, OperationalError) and str(state).startswith("54")
    )


def _engine_options(url: sa.URL) -> dict[str, Any]:
    if url.get_backend_name() == SQLITE:
        return {"connect_args": {"timeout": _BUSY_SECONDS, "check_same_thread": False}}
    return {"pool_pre_ping": True}


def _transactional(engine: sa.Engine) -> None:
    """Make SQLite's transactions hold everything, DDL included: Python's module would commit around it.

    WAL lets others read while a batch is written. synchronous stays FULL: a batch that Spark's checkpoint counts as
    written must outlive a power failure.
    """

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
