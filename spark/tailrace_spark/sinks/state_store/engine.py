"""From a URL to a database, and what its errors mean."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    DisconnectionError,
    IntegrityError,
    InvalidRequestError,
    NoSuchModuleError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as SQLAlchemyTimeoutError

from tailrace_common.backoff import Waits, repeated
from tailrace_common.secrets import redact
from tailrace_common.unreachable import unreachable
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.state_store.tables import MYSQL, POSTGRESQL, SQLITE
from tailrace_spark.sinks.table_faults import is_of_table

_BUSY_SECONDS: Final = 10
IDLE_SECONDS: Final = 120
"""After so long between two statements of a transaction a server ends it: its process was stopped, or its machine is
gone, and others wait for its locks. MySQL ends any session then, and the next transaction opens another."""
ONLY_READS: Final = "tailrace_only_reads"
"""The execution option of a connection whose transactions hold up nobody who writes a SQLite file."""
_POOLED: Final = "pooled"
_UNDOES: Final = "undoes"
_DRIVERS: Final = {
    SQLITE: "sqlite",
    POSTGRESQL: "postgresql+psycopg",
    MYSQL: "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
# PostgreSQL's SQLSTATEs, or their classes, and MySQL's numbers.
_OF_THE_SESSION: Final = ("26", "42P05")  # a prepared statement is not there, or already
_TAKEN: Final = ("42P07", 1050, 1347)
_FORBIDDEN: Final = ("42501", 1044, 1142, 1143, 1227, 1370)
_IN_USE: Final = ("2BP01", "42P16")
_OTHERWISE: Final = ("42", 1054, 1091, 1146, 1146)
_TIMED_OUT: Final = (1205,)
_BUSY: Final = ("23505", "40001", "40P01", "55P03", 1062, *_TIMED_OUT)  # not 1213: that ends the transaction
_TOO_LARGE: Final = ("54", 1118, 1406)
# MySQL of values: too long, out of range, of another character set, no JSON.
_VALUES: Final = (1264, 1292, 1366, 1367, 3140, 4025)

# Of tables: too many columns or keys, names and keys that are too long, a form that the database does not make.
_UNFIT: Final = ("0A", "42", "54", 1005, 1059, 1069, 1071, 1074, 1117, 1118, 1166, 1300)
_UNFIT_WORDS: Final = ("too many columns", "too many terms", "string or blob too big", "row is too big")  # SQLite's
_STEPS: Final = (
    "CREATE TABLE {} (k INTEGER)",
    "ALTER TABLE {} ADD COLUMN v INTEGER",
    "CREATE INDEX {}_index ON {} (k)",
    "CREATE VIEW {}_view AS SELECT k FROM {}",
    "CREATE TEMPORARY TABLE {}_staged (k INTEGER)",
    "INSERT INTO {} (k) VALUES (1)",
    "UPDATE {} SET v = 2 WHERE k = 1",
    "DELETE FROM {} WHERE k = 1",
)
_DROPS: Final = ("DROP VIEW IF EXISTS {}_view", "DROP TABLE IF EXISTS {}")
_LONGEST_CHARACTER: Final = 4  # bytes
_SAYS_POOLED: Final = "a pooler stands before it: no statement is prepared; pool_mode may be session or transaction"


def open_engine(url: str, setting: str = "sink url") -> sa.Engine:
    """The engine for the URL of a setting; nothing is connected yet. Raises SettingsError for another database's."""
    location = f"{setting} {redact(url)}"
    try:
        parsed = sa.make_url(url)
    except SQLAlchemyError as error:
        raise SettingsError(f"{location}: {error}") from None
    backend = parsed.get_backend_name()
    if backend not in _DRIVERS:
        raise SettingsError(f"{location}: only sqlite:///, postgresql://, mysql:// and mariadb:// are written")
    if parsed.drivername == backend or backend == "mariadb":
        parsed = parsed.set(drivername=_DRIVERS[backend])
    if _DRIVERS[backend] == _DRIVERS[MYSQL]:
        parsed = parsed.update_query_dict({"charset": "utf8mb4"})
    elif backend == POSTGRESQL:
        # A database without an encoding (SQL_ASCII) would answer bytes for texts.
        parsed = parsed.set(query={"client_encoding": "utf8", **parsed.query})
    try:
        engine = sa.create_engine(parsed, hide_parameters=True, **_options(backend))
    except (NoSuchModuleError, ImportError) as error:
        extra = " with pip install 'tailrace[mysql]'" if _DRIVERS[backend] == _DRIVERS[MYSQL] else ""
        raise SettingsError(f"{location}: install its driver{extra} ({error})") from None
    _prepare(engine)
    _end_savepoints(engine.dialect)
    return engine


def said(error: BaseException) -> str:
    """What the database or decoder said, in one line and without the statement's parameters: they are data."""
    origin = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    words = origin.args[1] if _number(error) is not None and len(origin.args) > 1 else origin
    words = getattr(getattr(origin, "diag", None), "message_primary", None) or words  # the rest of it has values
    return " ".join(str(words).split())[:500]


def remedy(error: BaseException) -> str:
    """What to do where the database refused to make, widen or find a table; empty for all else."""
    words = said(error).lower()
    if _is(error, _OF_THE_SESSION):
        return ": a pooler gives each transaction another session, and was not recognised; connect to the server itself"
    if _is(error, _TAKEN) or "already exists" in words or "already another table or index" in words:
        return ": drop or rename that, or give this sink's tables other names by `table` in its settings"
    if _is(error, _FORBIDDEN) or "readonly" in words or "read-only" in words:
        return ": let this user make and alter tables there"
    if _is(error, _IN_USE):
        return ": drop what was built on it, and create that again afterwards"
    if _is(error, _OTHERWISE) or words.startswith(("no such", "duplicate column", "object name reserved")):
        return ": the sink's tables are not as tailrace_tables says; undo what changed them, or start over empty"
    return ""


def failure(subject: str, location: str, error: SQLAlchemyError, advice: str) -> ServiceError:
    """What a database said, with `advice` behind it; of one that cannot be connected to what that needs.

    `location` names it without secrets, `subject` says what it is for besides.
    """
    words = said(error)
    return unreachable(location, words, "the database") or ServiceError(f"{subject} {location}: {words}{advice}")


def refuses_a_value(error: SQLAlchemyError) -> bool:
    """Whether the database refuses these values, rather than being out of order itself.

    PostgreSQL says "program limit exceeded" (class 54) of a key too long for an index; psycopg counts that as
    operational. PyMySQL counts some of MySQL's numbers so.
    """
    if not isinstance(error, DBAPIError) or _is(error, _BUSY):
        return False
    if isinstance(error, DataError | IntegrityError):
        return True
    return isinstance(error, OperationalError) and _is(error, (*_TOO_LARGE, *_VALUES))


def absent(engine: sa.Engine) -> str:
    """That a SQLite file's directory is not there, which SQLite calls `unable to open database file`."""
    file = engine.url.database
    if engine.dialect.name != SQLITE or not file or (directory := Path(file).absolute().parent).is_dir():
        return ""
    return f": {directory} is no directory"


def refuses_a_table(error: DBAPIError) -> bool:
    """Whether the database refuses one table for what somebody can change: dropped, altered, taken or forbidden."""
    if error.connection_invalidated:
        return False
    return bool(remedy(error)) or isinstance(error, ProgrammingError)


def is_of_one_table(error: Exception) -> bool:
    """Whether what was raised by work on one table is that table's, so that the others go on (table_faults).

    Of what the database says these are refusals of the table, or of what goes into it; all else is the database's.
    """
    if isinstance(error, DBAPIError):
        if error.connection_invalidated or _is(error, (*_BUSY, *_OF_THE_SESSION)):
            return False
        words = said(error).lower()
        return (
            refuses_a_table(error) or refuses_a_value(error) or isinstance(error, NotSupportedError)
            or _is(error, _UNFIT) or any(phrase in words for phrase in _UNFIT_WORDS)
        )  # fmt: skip
    if isinstance(error, SQLAlchemyError):
        return not isinstance(error, InvalidRequestError | SQLAlchemyTimeoutError)
    return is_of_table(error)


def may_try_again(connection: sa.Connection, error: DBAPIError) -> bool:
    """Whether another transaction was in the way, and what this one wrote before is still written.

    A row that is there already, though it was not a moment ago, is another writer's: a stream that was not stopped.
    """
    return _is(error, _BUSY) and not (connection.info.get(_UNDOES) and _is(error, _TIMED_OUT))


def _is(error: BaseException, codes: tuple[str | int, ...]) -> bool:
    error_code, state = _number(error), str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")
    return error_code in codes or any(
        isinstance(code, str) and bool(state) and state.startswith(code) for code in codes
    )


def _number(error: BaseException) -> int | None:
    """MySQL's number of an error, None for other databases'."""
    args: tuple[Any, ...] = getattr(getattr(error, "orig", None), "args", ())
    return args[0] if args and isinstance(args[0], int) else None


def _options(backend: str) -> dict[str, Any]:
    if backend == SQLITE:
        return {"connect_args": {"timeout": _BUSY_SECONDS, "check_same_thread": False}}
    if backend == POSTGRESQL:
        return {"pool_pre_ping": True}
    # What one transaction reads it also writes, and nobody else does: locks of gaps would only be in others' way.
    return {"pool_pre_ping": True, "isolation_level": "READ COMMITTED"}


def is_pooled(connection: sa.Connection) -> bool:
    """Whether a pooler such as PgBouncer stands before PostgreSQL. It may give each transaction another session."""
    return bool(connection.info.get(_POOLED))


def _prepare(engine: sa.Engine) -> None:
    """Set what every connection needs.

    SQLite's transactions hold everything, DDL included: Python's module would commit around it. WAL lets others read
    while a batch is written; synchronous stays FULL: a batch that Spark's checkpoint counts as written must outlive a
    power failure. MySQL refuses what does not fit, and cuts nothing off.
    """
    if engine.dialect.name == POSTGRESQL:
        _share_sessions(engine)
        return
    statements = {
        SQLITE: ("PRAGMA synchronous=FULL", "PRAGMA temp_store=MEMORY"),
        MYSQL: (
            "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
            f"SET SESSION innodb_lock_wait_timeout = {_BUSY_SECONDS}, SESSION lock_wait_timeout = {_BUSY_SECONDS}",
            f"SET SESSION wait_timeout = {IDLE_SECONDS}",
        ),
    }[engine.dialect.name]

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, record: Any) -> None:
        if engine.dialect.name == SQLITE:
            connection.isolation_level = None
            _write_ahead(connection)
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        if engine.dialect.name == MYSQL:
            cursor.execute("SELECT @@max_allowed_packet, @@innodb_rollback_on_timeout")
            limit, record.info[_UNDOES] = cursor.fetchone()
            _refuse_large_statements(connection, limit, engine.dialect.loaded_dbapi)
        cursor.close()
        connection.commit()

    if engine.dialect.name == SQLITE:
        _follow_file(engine)

        @sa.event.listens_for(engine, "begin")
        def _begin(connection: sa.Connection) -> None:
            only_reads = connection.get_execution_options().get(ONLY_READS, False)
            connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")


def _refuse_large_statements(connection: Any, limit: int, dbapi: Any) -> None:
    """Refuse, as a value, a statement for which the server would end the connection: a row may be too large for one."""
    send = connection.query

    def query(statement: str | bytes, *args: Any, **options: Any) -> Any:
        if len(statement) * _LONGEST_CHARACTER >= limit:
            if isinstance(statement, str):
                statement = statement.encode(connection.encoding, "surrogateescape")
            if len(statement) + 1 >= limit:
                raise dbapi.DataError(1153, f"a statement of {len(statement)} bytes; max_allowed_packet is {limit}")
        return send(statement, *args, **options)

    connection.query = query


def _share_sessions(engine: sa.Engine) -> None:
    """Leave nothing in PostgreSQL's sessions: a pooler gives them to other clients, transaction by transaction.

    What is staged is joined by its keys: PostgreSQL knows nothing of the size of a temporary table.
    """
    values = {"client_min_messages": "warning", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off",
              "lock_timeout": f"{_BUSY_SECONDS}s",
              "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s"}  # fmt: skip
    for_a_transaction = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in values.items())

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, record: Any) -> None:
        [pid] = connection.execute("SELECT pg_backend_pid()").fetchone()
        connection.commit()
        record.info[_POOLED] = pid != connection.info.backend_pid  # which the pooler has drawn for us
        if record.info[_POOLED]:
            connection.prepare_threshold = None  # the next transaction's session knows nothing of what is prepared

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"SELECT {for_a_transaction}")

    @sa.event.listens_for(engine, "commit")
    def _commit(connection: sa.Connection) -> None:
        if is_pooled(connection):
            connection.exec_driver_sql("DISCARD TEMP")


def _end_savepoints(dialect: sa.Dialect) -> None:
    """Have no savepoint stay behind that was rolled back to.

    SQLAlchemy leaves it, and each later one stands in it: in PostgreSQL that takes locks, of which there are some
    thousands, and longer and longer.
    """
    roll_back = dialect.do_rollback_to_savepoint

    def end(connection: sa.Connection, name: str) -> None:
        roll_back(connection, name)
        dialect.do_release_savepoint(connection, name)

    dialect.do_rollback_to_savepoint = end  # type: ignore[method-assign]  # SQLAlchemy has no event behind it


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Give a file its WAL. SQLite refuses at once, without its wait, where two ask for it at the same time."""
    repeated(
        lambda: connection.execute("PRAGMA journal_mode=WAL").close(),
        Waits(0.01, 0.2),
        lambda error: isinstance(error, sqlite3.OperationalError) and "locked" in str(error),
        seconds=_BUSY_SECONDS,
    )


def _follow_file(engine: sa.Engine) -> None:
    """Open a SQLite file that was deleted or replaced again: SQLite would write into the one that has no name."""
    if not engine.url.database or engine.url.database == ":memory:":
        return
    file = Path(engine.url.database)

    @sa.event.listens_for(engine, "connect")
    def _opened(_: Any, record: Any) -> None:
        record.info["file"] = _identity(file)

    @sa.event.listens_for(engine, "checkout")
    def _used(_: Any, record: Any, _proxy: Any) -> None:
        if record.info["file"] != _identity(file):
            raise DisconnectionError(f"{file} is another file now")


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def try_out(engine: sa.Engine, subject: str, make: Callable[[sa.Connection], None]) -> str:
    """As TrialSink says. `make` makes the tables of ours that are missing; `subject` names the database in errors.

    MySQL commits each step, so `make` is left out there, and what else is made is dropped again. A file of SQLite is
    whoever's may write it.
    """
    if engine.dialect.name == SQLITE:
        return ""
    try:
        with engine.connect() as connection:  # and no commit
            if engine.dialect.name != MYSQL:
                make(connection)
            _try_definitions(connection)
            return _SAYS_POOLED if is_pooled(connection) else ""
    except SQLAlchemyError as error:
        raise ServiceError(f"{subject}: {said(error)}{remedy(error)}") from error


def _try_definitions(connection: sa.Connection) -> None:
    name, drops = f"tailrace_check_{token_hex(4)}", _DROPS if connection.dialect.name == MYSQL else ()
    try:
        for statement in (*drops, *_STEPS):
            connection.exec_driver_sql(statement.replace("{}", name))
    finally:
        for statement in drops:
            connection.exec_driver_sql(statement.replace("{}", name))
