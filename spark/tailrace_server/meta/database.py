"""Opens the meta database, brings its tables up to date, and says in our words what goes wrong with it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from tailrace_common.closing import Closing
from tailrace_common.secrets import shown_database
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_server.meta.tables import metadata
from tailrace_spark.sinks.state_store.engine import ONLY_READS, absent, failure, open_engine

log = logging.getLogger("tailrace_server")

_LOCK: Final = 5_471_990_131_277
"""The number, and for MySQL the name, of the lock under which tables are made: several servers may start at once."""
_LOCK_SECONDS: Final = 60
SECONDS: Final = 5
"""Of each step. A call that finds its pooled connection dead reconnects, so it takes two at the most."""
_BY_DIALECT: Final[dict[str, dict[str, int]]] = {
    "sqlite": {"timeout": 2 * SECONDS},  # a file never hangs: others write
    "postgresql": {"connect_timeout": SECONDS, "tcp_user_timeout": 1000 * SECONDS},
    "mysql": {"connect_timeout": SECONDS, "read_timeout": SECONDS, "write_timeout": SECONDS},
}
T = TypeVar("T")
Values = Mapping[str, Any]


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

        `of_one_moment`: it only reads, all as it was when the transaction began, and holds up nobody.
        """
        try:
            with self._engine.connect() as connection:
                if of_one_moment and connection.dialect.name == "sqlite":
                    connection.execution_options(**{ONLY_READS: True})  # as of its first question, by the WAL
                elif of_one_moment:
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
            if not is_current(connection, self.location):
                log.info("making the tables of the meta database %s, or bringing them up to date", self.location)
                make_or_migrate(connection)
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


def first(connection: sa.Connection, statement: sa.Executable) -> Any:
    """The first row of what a statement gives, as a mapping; None without any."""
    return connection.execute(statement).mappings().first()


def put(connection: sa.Connection, table: sa.Table, key: Values, values: Values, **first_values: Any) -> None:
    """Update the row of a key, or insert it; then with the first values, which win."""
    update = sa.update(table).where(*(table.c[name] == value for name, value in key.items()))
    if not connection.execute(update.values(values)).rowcount:
        connection.execute(sa.insert(table).values({**values, **first_values, **key}))


class now(FunctionElement[int]):
    """The time of the statement."""

    inherit_cache = True
    type = sa.BigInteger()


@compiles(now, "sqlite")
def _sqlite(_element: now, _compiler: Any, **_: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


@compiles(now, "postgresql")
def _postgresql(_element: now, _compiler: Any, **_: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"


@compiles(now, "mysql")
@compiles(now, "mariadb")
def _mysql(_element: now, _compiler: Any, **_: Any) -> str:
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"


def bound(engine: sa.Engine) -> None:
    """Give each connection and each statement of an engine its time-outs."""
    limits, is_postgresql = _BY_DIALECT[engine.dialect.name], engine.dialect.name == "postgresql"

    @sa.event.listens_for(engine, "do_connect")
    def _connect(dialect: sa.Dialect, _record: object, words: list[Any], values: dict[str, Any]) -> Any:
        connection: Any = dialect.connect(*words, **{**values, **limits})
        if is_postgresql:
            connection.wait = partial(_answered, connection, connection.wait)
        return connection

    if is_postgresql:

        @sa.event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {1000 * SECONDS}")


def _answered(connection: Any, wait: Callable[..., T], steps: object, **how: Any) -> T:
    """As psycopg waits for an answer, but no longer. The server's own time-out does not reach us where a network hangs,
    and TCP's does not where a proxy keeps the connection alive."""
    try:
        return wait(steps, **{"timeout": SECONDS + 1, **how})
    except Exception:
        if connection.info.transaction_status.name == "ACTIVE":
            connection.close()  # the answer to come would be taken for the next question's
        raise


def is_current(connection: sa.Connection, location: str) -> bool:
    """Whether the tables are there, as of today. Raises SettingsError for those of a version that nobody knows."""
    revision = revision_of(connection)
    scripts = ScriptDirectory.from_config(_config(connection))
    if revision is not None and revision not in {script.revision for script in scripts.walk_revisions()}:
        raise SettingsError(
            f"server.url {location}: its tables are of another version of Tailrace (revision {revision}). "
            "Install that version, or give the servers another database"
        )
    return revision == scripts.get_current_head()


def revision_of(connection: sa.Connection) -> str | None:
    """The revision of the tables; None where there are none."""
    return MigrationContext.configure(connection).get_current_revision()


def make_or_migrate(connection: sa.Connection) -> None:
    """Make the tables of today in a new database, and note their revision; alter those of an earlier version.

    MySQL keeps each statement, so tables may be there of a start that a crash ended. Where the columns are others it is
    somebody else's table, and the database refuses ours.
    """
    if revision_of(connection) is not None:
        command.upgrade(_config(connection), "head")
        return
    inspector = sa.inspect(connection)
    for table in metadata.sorted_tables:
        existing = inspector.get_columns(table.name) if inspector.has_table(table.name) else []
        if {column["name"] for column in existing} != set(table.c.keys()):
            table.create(connection, checkfirst=False)
    command.stamp(_config(connection), "head")


def _config(connection: sa.Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
