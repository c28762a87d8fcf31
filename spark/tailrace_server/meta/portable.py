"""Rows of the meta database as JSON that any of its databases takes back. Secrets stay sealed."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tailrace_schemas.errors import CorruptError
from tailrace_server.meta.tables import api_key, audit, delivery, progress, snapshot_progress, subscribe
from tailrace_spark.sinks.state_store.engine import said

PORTABLE: Final = (subscribe, progress, snapshot_progress, delivery, api_key, audit)
"""What is kept, referenced tables first. Leases and signs of life are of the servers that run."""

_OF_SERVERS: Final = ("owner", "lease_until", "written", "left_out", "changes", "mirrored")
_BASE64: Final = "base64:"


def row_as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row, but for what servers note of themselves."""
    return {name: _value(value) for name, value in row.items() if name not in _OF_SERVERS}


def rows_of(
    connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool]
) -> Iterator[dict[str, Any]]:
    """The rows of a table in the order of its key."""
    statement = sa.select(table).where(*conditions).order_by(*table.primary_key.columns)
    for row in connection.execute(statement).mappings():
        yield row_as_json(dict(row))


def insert(connection: sa.Connection, name: str, row: object) -> None:
    """Insert a row of `row_as_json`. Raises CorruptError for what is no row of this version's tables."""
    tables = {table.name: table for table in PORTABLE}
    if name not in tables or not isinstance(row, Mapping):
        raise CorruptError(f"no row of a table of this version: {name}")
    table = tables[name]
    if unknown := sorted(row.keys() - set(table.c.keys())):
        raise CorruptError(f"table {name} has no column {', '.join(map(str, unknown))}: a newer Tailrace wrote it")
    missing = [
        column.name
        for column in table.columns
        if column.name not in row and not column.nullable and column.server_default is None
    ]
    if missing:
        raise CorruptError(f"a row of {name} lacks {', '.join(missing)}")
    values = {key: _parsed(table.c[key], value) for key, value in row.items()}
    try:
        connection.execute(sa.insert(table).values(values))
    except IntegrityError as error:
        raise CorruptError(f"a row of {name} does not fit the others: {said(error)}") from None


def continue_ids(connection: sa.Connection, last: int = 0) -> None:
    """Let new ids begin behind those that were inserted, and behind `last` for subscriptions.

    A sink notes its progress by an id, so none may come again. PostgreSQL counts apart from what is inserted.
    """
    newest = connection.scalar(sa.select(sa.func.max(subscribe.c.id))) or 0
    if last > newest and connection.dialect.name != "postgresql":
        _use_up(connection, last)
    if connection.dialect.name == "postgresql":
        for table, least in ((subscribe, last), (api_key, 0), (audit, 0)):
            newest = max(connection.scalar(sa.select(sa.func.max(table.c.id))) or 0, least)
            if newest:
                sequence = sa.func.pg_get_serial_sequence(table.name, "id")
                connection.execute(sa.select(sa.func.setval(sequence, newest)))


def _use_up(connection: sa.Connection, identity: int) -> None:
    """SQLite and MySQL count on from the largest id that there ever was."""
    texts = {
        column.name: "" for column in subscribe.columns if isinstance(column.type, sa.String) and not column.nullable
    }
    numbers = {
        column.name: 0 for column in subscribe.columns if isinstance(column.type, sa.Integer) and not column.nullable
    }
    connection.execute(sa.insert(subscribe).values({**numbers, **texts, "id": identity, "ended": identity}))
    connection.execute(sa.delete(subscribe).where(subscribe.c.id == identity))


def _value(value: Any) -> Any:
    return _BASE64 + base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _parsed(column: sa.Column[Any], value: Any) -> Any:
    if not isinstance(column.type, sa.LargeBinary) or value is None:
        return value
    if not isinstance(value, str) or not value.startswith(_BASE64):
        raise CorruptError(f"{column}: no bytes in base64")
    try:
        return base64.b64decode(value.removeprefix(_BASE64), validate=True)
    except ValueError as error:
        raise CorruptError(f"{column}: {error}") from None
