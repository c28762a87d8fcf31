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

_OF_SERVERS: Final = ("owner", "lease_until", "written", "left_out")
_BASE64: Final = "base64:"


def row_as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row, but for what servers note of themselves."""
    return {name: _value(value) for name, value in row.items() if name not in _OF_SERVERS}


def rows_of(connection: sa.Connection, table: sa.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table in the order of its key."""
    statement = sa.select(table).order_by(*table.primary_key.columns)
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


def continue_ids(connection: sa.Connection) -> None:
    """Let new ids begin behind those that were inserted: PostgreSQL counts apart from these.

    A sink notes its progress by an id, so none may come again.
    """
    if connection.dialect.name != "postgresql":
        return
    for table in (subscribe, api_key, audit):
        newest = connection.scalar(sa.select(sa.func.max(table.c.id)))
        if newest is not None:
            sequence = sa.func.pg_get_serial_sequence(table.name, "id")
            connection.execute(sa.select(sa.func.setval(sequence, newest)))


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
