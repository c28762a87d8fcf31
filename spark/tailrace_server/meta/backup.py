"""The meta database as lines of JSON: a head with format and revision, then a row each, then their count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tailrace_schemas.errors import CorruptError
from tailrace_server.meta.database import MetaDatabase, first, now, revision_of
from tailrace_server.meta.tables import api_key, audit, delivery, progress, session, snapshot_progress, subscribe
from tailrace_server.model.subscription import ConflictError
from tailrace_spark.sinks.state_store.engine import said

FORMAT: Final = 1
PORTABLE: Final = (subscribe, progress, snapshot_progress, delivery, api_key, audit)
"""What is kept, referenced tables first. Leases and signs of life are of the servers that run."""

_FIRST_SECOND: Final = 1_577_836_800  # of 2020, so that ids fit 32 bits until 2088
_OF_SERVERS: Final = tuple(f"subscribe.{name}" for name in ("owner", "lease_until", "retry_at", "written", "left_out"))


def lines_of(database: MetaDatabase) -> Iterator[str]:
    """All of it, as of one moment. Keys of the API are digests."""
    with database.transaction(of_one_moment=True) as connection:
        yield json.dumps({"format": FORMAT, "revision": revision_of(connection)})
        count = 0
        for table in PORTABLE:
            for row in rows_of(connection, table):
                count += 1
                yield json.dumps({"table": table.name, "row": row}, ensure_ascii=False)
        yield json.dumps({"rows": count})


def restore(database: MetaDatabase, lines: Iterable[str], *, replace: bool = False) -> dict[str, int]:
    """Fill a prepared meta database, all or nothing; how many rows of each table.

    Raises ConflictError where it has rows and `replace` is not set, CorruptError for what is no backup of this
    version's tables. With `replace` workers lose their leases, and write nothing more of what they run.
    """
    counts: dict[str, int] = {}
    with database.transaction() as connection:
        _empty(connection, database.location, replace=replace)
        records = _records(lines)
        head, present = next(records, {}), revision_of(connection)
        if head.get("format") != FORMAT:
            raise CorruptError(f"no backup of a meta database of format {FORMAT}: its first line is no head of one")
        for record in records:
            if "table" not in record:
                if record.get("rows") != sum(counts.values()):
                    raise CorruptError(f"the backup is cut: it has {sum(counts.values())} rows of {record.get('rows')}")
                break
            name = str(record["table"])
            try:
                insert(connection, name, record.get("row"))
            except CorruptError as error:
                words = f"the backup is of revision {head.get('revision')}, and the tables are of {present}"
                raise CorruptError(f"{error}; {words}") from None
            counts[name] = counts.get(name, 0) + 1
        else:
            raise CorruptError("the backup is cut: its last line is missing")
        continue_ids(connection)
    return counts


def _empty(connection: sa.Connection, location: str, *, replace: bool) -> None:
    for table in PORTABLE:
        if not replace and first(connection, sa.select(table).limit(1)) is not None:
            raise ConflictError(
                f"the meta database {location} is not empty: restore into a new one (server.url), or give --replace, "
                "which deletes all that it has"
            )
    for table in (session, *reversed(PORTABLE)):
        connection.execute(sa.delete(table))


def _records(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for line_number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise CorruptError(f"line {line_number} of the backup is not JSON: {error}") from None
        if not isinstance(record, Mapping):
            raise CorruptError(f"line {line_number} of the backup is no record")
        yield record


def rows_of(connection: sa.Connection, table: sa.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table in the order of its key, without what servers note of themselves."""
    columns = [column for column in table.columns if str(column) not in _OF_SERVERS]
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
    """Let new ids begin behind all that were ever given, those behind the backup too: by the time of the restoration.

    A sink notes its progress by an id, so none may come again. PostgreSQL counts apart from its rows; the others count
    on from one that was there.
    """
    elapsed = int(connection.scalar(sa.select(now())) or 0) // 1000 - _FIRST_SECOND
    for table in (subscribe, api_key, audit):
        newest = connection.scalar(sa.select(sa.func.max(table.c.id))) or 0
        passed = max(newest + 1, elapsed)
        if connection.dialect.name == "postgresql":
            sequence = sa.func.pg_get_serial_sequence(table.name, "id")
            connection.execute(sa.select(sa.func.setval(sequence, sa.func.greatest(passed, sa.func.nextval(sequence)))))
        else:
            blank = {column.name: column.type.python_type() for column in table.columns if not column.nullable}
            connection.execute(sa.insert(table).values({**blank, "id": passed}))
            connection.execute(sa.delete(table).where(table.c.id == passed))
