"""Opens the meta database, brings its tables up to date, and says in our words what goes wrong with it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tailrace_common.closing import Closing
from tailrace_common.secrets import shown_database
from tailrace_schemas.errors import ServiceError
from tailrace_server.meta.bounds import bound
from tailrace_server.meta.migration import Tables, current, upgrade
from tailrace_spark.sinks.state_store.engine import absent, failure, open_engine

log = logging.getLogger("tailrace_server")

_LOCK: Final = 5_471_990_131_277
"""The number, and for MySQL the name, of the lock under which tables are made: several servers may start at once."""
_LOCK_SECONDS: Final = 60


class MetaDatabase(Closing):
    """The engine of a meta database, with a transaction at a time for each thread."""

    def __init__(self, url: str) -> None:
        """`url` is SQLAlchemy's. Raises SettingsError for a database of another kind; nothing is connected yet."""
        self._engine = open_engine(url, "server.url")
        bound(self._engine)
        self.location = shown_database(url)

    @contextmanager
    def transaction(self, *, of_one_moment: bool = False) -> Iterator[sa.Connection]:
        """A transaction, kept where the block ends well. Raises ServiceError where the database does not answer.

        `of_one_moment`: all that is read is as it was when the transaction began.
        """
        try:
            with self._engine.connect() as connection:
                if of_one_moment and connection.dialect.name == "postgresql":  # elsewhere each transaction is so
                    connection.execution_options(isolation_level="REPEATABLE READ")
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            raise self._fault(error) from error

    def ping(self) -> None:
        """Raises ServiceError where the database does not answer."""
        with self.transaction() as connection:
            connection.execute(sa.select(1))

    def prepare(self) -> None:
        """Make the tables, or bring those of an earlier version up to date. A new file only this user may read.

        Raises ServiceError, and SettingsError for tables of a version that this one does not know.
        """
        self._make_file()
        try:
            with self._engine.connect() as connection:
                self._locked(connection)
        except SQLAlchemyError as error:
            raise self._fault(error) from error

    def _make_file(self) -> None:
        """SQLite makes the files beside it with the same rights."""
        url = self._engine.url
        if url.get_backend_name() == "sqlite" and url.database and not url.database.startswith((":", "file:")):
            with suppress(OSError):  # SQLite says it in our words
                os.close(os.open(url.database, os.O_CREAT | os.O_RDWR, 0o600))

    def _locked(self, connection: sa.Connection) -> None:
        dialect = connection.dialect.name
        if dialect == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        elif dialect != "sqlite":  # where a transaction has the whole database anyway
            connection.execute(sa.select(sa.func.get_lock(str(_LOCK), _LOCK_SECONDS)))
        try:
            if current(connection, self.location) is Tables.OLDER:
                log.info("making the tables of the meta database %s, or bringing them up to date", self.location)
                upgrade(connection)
            connection.commit()
        finally:
            # Without a connection there is no lock, and the words of that would stand in place of the error's.
            if dialect not in ("postgresql", "sqlite") and not connection.invalidated:
                connection.execute(sa.select(sa.func.release_lock(str(_LOCK))))

    def _fault(self, error: SQLAlchemyError) -> ServiceError:
        advice = absent(self._engine) if isinstance(error, DBAPIError) else ""
        return failure("the meta database", self.location, error, f"{advice} (server.url)")

    def close(self) -> None:
        """Leave it."""
        self._engine.dispose()


def file_url(file: Path) -> str:
    """The URL of a SQLite file."""
    return f"sqlite:///{file}"


def first(connection: sa.Connection, statement: sa.Executable) -> Any:
    """The first row of what a statement gives, as a mapping; None without any."""
    return connection.execute(statement).mappings().first()
