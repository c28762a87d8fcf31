"""Rows of the meta database as JSON that any of its databases takes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tailrace_schemas.errors import CorruptError
from tailrace_server.meta.tables import api_key, audit, delivery, progress, snapshot_progress, subscribe
from tailrace_spark.sinks.state_store.engine import said

PORTABLE: Final = (subscribe, progress, snapshot_progress, delivery, api_key, audit)
"""What is kept, referenced tables first. Leases and signs of life are of the servers that run."""

_OF_SERVERS: Final = ("owner", "lease_until", "retry_at", "written", "left_out")


def rows_of(connection: sa.Connection, table: sa.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table in the order of its key, without what servers note of themselves."""
    columns = [column for column in table.columns if column.name not in _OF_SERVERS]
    statement = sa.select(*columns).order_by(*table.primary_key.columns)
    yield from map(dict, connection.execute(statement).mappings())


def insert(connection: sa.Connection, name: str, row: object) -> None:
    """Insert a row of `rows_of`. Raises CorruptError for what is no row of this version's tables."""
    tables = {table.name: table for table in PORTABLE}
    if name not in tables or not isinstance(row, Mapping):
        raise CorruptError(f"no row of a table of this version: {name}")
    table = tables[name]
    if unknown := sorted(row.keys() - set(table.c.keys())):
        raise CorruptError(f"table {name} has no column {', '.join(map(str, unknown))}: a newer Tailrace wrote it")
    if missing := [column.name for column in table.columns if column.name not in row and not column.nullable]:
        raise CorruptError(f"a row of {name} lacks {', '.join(missing)}")
    try:
        connection.execute(sa.insert(table).values(dict(row)))
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
