"""What happens between a server's statements, and how a database differs from the code's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tailrace_server.meta.tables import metadata

CHANGES = ("CREATE", "ALTER", "DROP", "INSERT", "UPDATE")


@contextmanager
def before(number: int, call: Callable[[], object]) -> Iterator[None]:
    """While inside, something is done before the nth statement that changes anything, of whatever engine."""
    numbers = count(1)

    def look(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if statement.split()[0] in CHANGES and next(numbers) == number:
            call()

    sa.event.listen(sa.Engine, "before_cursor_execute", look)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", look)


@contextmanager
def by(clock: Callable[[], float]) -> Iterator[None]:
    """While inside, SQLite has the time of this clock, in seconds since 1970."""

    def connected(connection: Any, _record: object) -> None:
        # Half a millisecond more: a day's fraction has no whole ones, and is cut.
        connection.create_function("julianday", 1, lambda _: 2440587.5 + (clock() + 0.0005) / 86400)

    sa.event.listen(sa.Pool, "connect", connected)
    try:
        yield
    finally:
        sa.event.remove(sa.Pool, "connect", connected)


def missing(url: str) -> object:
    """How the tables of a database differ from those of the code."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()
    return differences
