"""Many rows at once, as each database takes them best: COPY into PostgreSQL, long statements into the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable

from tailrace_spark.sinks.state_store.binary_rows import END, HEAD, binary_rows, forms_of
from tailrace_spark.sinks.state_store.tables import MYSQL, MYSQL_TABLE, POSTGRESQL

Rows = Sequence[Sequence[object]]

_AT_ONCE: Final = 200  # rows: so often another thread gets its turn

TEMPORARY: Final[dict[str, Any]] = {"prefixes": ["TEMPORARY"], "postgresql_on_commit": "DELETE ROWS", **MYSQL_TABLE}
"""What makes a table of SQLAlchemy a temporary one, for `stage`. Texts of any script go through it."""


def stage(connection: sa.Connection, table: sa.Table, rows: Rows) -> None:
    """Make these the rows of a temporary table; each has a value for each column, in order."""
    connection.execute(CreateTable(table, if_not_exists=True))
    connection.execute(table.delete())
    insert(connection, table, [column.name for column in table.columns], rows)


def overwrite(connection: sa.Connection, table: sa.Table, names: Sequence[str], rows: Rows) -> None:
    """Put rows, each with values for these columns, in the place of those with the same key."""
    if not rows:
        return
    if connection.dialect.name == POSTGRESQL:
        staged = _like(table, names)
        stage(connection, staged, rows)
        insert = postgresql.insert(table).from_select(list(names), sa.select(*staged.columns))
        rest = {name: insert.excluded[name] for name in names if not table.c[name].primary_key}
        connection.execute(insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=rest))
        return
    quote = connection.dialect.identifier_preparer.quote
    rest_names = [quote(name) for name in names if not table.c[name].primary_key]
    if connection.dialect.name == MYSQL:
        # VALUES(), which MySQL calls old: MariaDB knows nothing newer. Assignments use no other column's new value.
        on_conflict = "ON DUPLICATE KEY UPDATE " + ", ".join(f"{name} = VALUES({name})" for name in rest_names)
    else:
        key = ", ".join(quote(column.name) for column in table.primary_key)
        on_conflict = f"ON CONFLICT ({key}) DO UPDATE SET " + ", ".join(
            f"{name} = excluded.{name}" for name in rest_names
        )
    _insert(connection, table, names, rows, on_conflict)


def upsert(
    connection: sa.Connection, table: sa.Table, row: Mapping[str, object], changed: Mapping[str, object]
) -> None:
    """Put a row, or change the one that has its key; it is held until the transaction ends."""
    dialect = connection.dialect.name
    if dialect == MYSQL:
        connection.execute(mysql.insert(table).values(**row).on_duplicate_key_update(**changed))
        return
    insert = postgresql.insert if dialect == POSTGRESQL else sqlite.insert
    key = list(table.primary_key)
    connection.execute(insert(table).values(**row).on_conflict_do_update(index_elements=key, set_=changed))


def insert(connection: sa.Connection, table: sa.Table, names: Sequence[str], rows: Rows) -> None:
    """Insert rows, each with values for these columns. Raises DBAPIError where a key is there."""
    if not rows:
        return
    if connection.dialect.name != POSTGRESQL:
        _insert(connection, table, names, rows, "")
        return
    quote, dialect = connection.dialect.identifier_preparer.quote, connection.dialect
    statement = f"COPY {quote(table.name)} ({', '.join(map(quote, names))}) FROM STDIN (FORMAT BINARY)"
    forms = forms_of([table.c[name].type.compile(dialect) for name in names])
    _copy(connection, statement.replace("%%", "%"), forms, rows)


def fetch(connection: sa.Connection, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """What a statement in PostgreSQL's own words returns: sent and received in binary, and prepared once."""
    driver: Any = connection.connection.driver_connection
    with _as_sqlalchemy(connection, statement), driver.cursor(binary=True) as cursor:
        rows: list[tuple[Any, ...]] = cursor.execute(statement, values, prepare=True).fetchall()
    return rows


def _like(table: sa.Table, names: Sequence[str]) -> sa.Table:
    columns = [sa.Column(f"c{index}", table.c[name].type) for index, name in enumerate(names)]
    shape = hash(tuple(str(table.c[name].type) for name in names)) & 0xFFFFFFFFFFFF
    return sa.Table(f"tailrace_over_{shape:x}", sa.MetaData(), *columns, **TEMPORARY)


def _insert(connection: sa.Connection, table: sa.Table, names: Sequence[str], rows: Rows, suffix: str) -> None:
    quote = connection.dialect.identifier_preparer.quote
    mark = "%s" if connection.dialect.name == MYSQL else "?"
    marks = ", ".join([mark] * len(names))
    statement = f"INSERT INTO {quote(table.name)} ({', '.join(map(quote, names))}) VALUES ({marks}) {suffix}"  # noqa: S608
    connection.exec_driver_sql(statement, [tuple(row) for row in rows])


def _copy(connection: sa.Connection, statement: str, forms: list[int], rows: Rows) -> None:
    driver: Any = connection.connection.driver_connection
    with _as_sqlalchemy(connection, statement), driver.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(HEAD)
        for first in range(0, len(rows), _AT_ONCE):
            copy.write(binary_rows(forms, rows[first : first + _AT_ONCE]))
        copy.write(END)


@contextmanager
def _as_sqlalchemy(connection: sa.Connection, statement: str) -> Iterator[None]:
    """Raises the driver's errors as SQLAlchemy would, without values."""
    dbapi: Any = connection.dialect.loaded_dbapi
    try:
        yield
    except dbapi.Error as error:
        raised = DBAPIError.instance(
            statement, None, error, dbapi.Error, hide_parameters=True, dialect=connection.dialect
        )
        raise raised from error
