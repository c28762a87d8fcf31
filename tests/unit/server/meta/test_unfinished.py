"""Tables that a crash left half made, before any statement that makes them: the next start makes the rest."""

from __future__ import annotations

from itertools import count

import pytest
import sqlalchemy as sa

from tailrace_schemas.errors import ServiceError
from tailrace_server.meta.database import MetaDatabase
from tests.support.meta_database import before, missing


class CrashError(Exception):
    """The process ends here."""


def crash() -> None:
    """As a process that ends."""
    raise CrashError


def empty(engine: sa.Engine) -> None:
    """Drop all tables."""
    tables = sa.MetaData()
    tables.reflect(engine)
    tables.drop_all(engine)


def crashes(url: str, number: int) -> bool:
    """Whether making the tables comes as far as the nth statement."""
    with MetaDatabase(url) as database, before(number, crash):
        try:
            database.prepare()
        except CrashError:
            return True
    return False


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_next_start_makes_the_rest(url: str) -> None:
    engine = sa.create_engine(url)
    for number in count(1):
        empty(engine)
        if not crashes(url, number):
            assert number > 10
            break
        with MetaDatabase(url) as database:
            database.prepare()
        assert missing(url) == [], number
    engine.dispose()


def test_a_table_of_somebody_else_is_no_half_made_one(url: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE worker (owner int)")
    with MetaDatabase(url) as database, pytest.raises(ServiceError, match=r"worker.*already exists"):
        database.prepare()
    engine.dispose()
