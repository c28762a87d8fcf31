"""What happens between a server's statements, and how a database differs from the code's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

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


def missing(url: str) -> object:
    """How the tables of a database differ from those of the code."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()
    return differences
