"""What tests of sinks share: a database to look into, pieces made of changes, and a batch that is cut off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from tailrace_schemas.change import Change
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.streams import Assignment
from tailrace_schemas.topics import MAX_NAME
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.sinks.protocol import Sink, write_here
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

LONGEST_TOPIC = f"{'t' * MAX_NAME}@{'A' * 22}.{'0' * 12}"
"""Of a place: Kafka's longest, of a reading that has a name."""
_offsets = count()


@dataclass(frozen=True)
class Database:
    """One database, seen as its users see it."""

    url: str

    @cached_property
    def engine(self) -> sa.Engine:
        """Connections to look through."""
        return sa.create_engine(self.url)

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    @property
    def version(self) -> str:
        """Which database it is, of which version, as it says."""
        with self.engine.connect() as connection:
            found = ".".join(map(str, connection.dialect.server_version_info or ()))
            name = "mariadb" if getattr(connection.dialect, "is_mariadb", False) else self.dialect
        return f"{name} {found}"

    def select(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query, sorted. Names stand in double quotes, or in the database's own."""
        if self.dialect == "mysql":
            query = query.replace(" AS TEXT)", " AS CHAR)")
            query = query if "`" in query else query.replace('"', "`")
        with self.engine.connect() as connection:
            return sorted(map(tuple, connection.exec_driver_sql(query)), key=repr)

    def columns(self, table: str) -> list[str]:
        """The columns of SELECT *."""
        with self.engine.connect() as connection:
            return list(connection.exec_driver_sql(f"SELECT * FROM {table}").keys())

    def names(self) -> set[str]:
        """Every table and view."""
        inspector = sa.inspect(self.engine)
        return {*inspector.get_table_names(), *inspector.get_view_names()}

    def clear(self) -> None:
        """Drop every view and table."""
        inspector, quote = sa.inspect(self.engine), self.engine.dialect.identifier_preparer.quote
        with self.engine.begin() as connection:
            for kind, names in (("VIEW", inspector.get_view_names()), ("TABLE", inspector.get_table_names())):
                for name in names:
                    connection.exec_driver_sql(f"DROP {kind} {quote(name)}")

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table and view, as bytes and text."""
        quote = self.engine.dialect.identifier_preparer.quote
        return {name: self.select(f"SELECT * FROM {quote(name)}") for name in sorted(self.names())}


@contextmanager
def databases(urls: Iterable[str]) -> Iterator[list[Database]]:
    """Those of these URLs, in order."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Database(url))) for url in urls]


def piece(changes: Iterable[Change], assignment: Assignment | None = None, announced: int = -1) -> Piece:
    """The changes as one piece, each at an offset of its own."""
    return Piece(tuple(delivered(change, assignment, announced) for change in changes))


BROKEN: Final = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="broken", table_id=UUID(int=666))


def broken() -> Change:
    """What is no change at all: work on it raises KeyError, OverflowError or whatever, and no error of Tailrace's.

    Nobody knows the type of its column, and its cell was written at a time that no long can hold.
    """
    column = replace(BROKEN.regular[0], type=CqlType("unheard of"))
    change = Log(BROKEN).insert((1,), (), 1, v="a")
    cells = tuple(replace(cell, column=column, written=1 << 80) for cell in change.cells)
    return replace(change, table=replace(BROKEN, regular=(column,)), cells=cells)


def is_cut_off(sink: Sink, *pieces: Piece) -> bool:
    """Write a micro-batch, and close the sink. Whether its store was gone before the batch was written."""
    with closing(sink):
        try:
            write_here(sink, pieces)
        except ServiceError:
            return True
    return False


def delivered(change: Change, assignment: Assignment | None = None, announced: int = -1) -> Delivered:
    """A change at an offset of its own."""
    return Delivered(RecordId("t.ks.t", 0, next(_offsets), b"12345678"), change, assignment, announced)
