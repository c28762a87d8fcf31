"""MySQL and MariaDB commit around DDL: whatever a crash left of a table's objects, the next sink completes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace_schemas.table import DroppedColumn
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.catalog import TakenError
from tailrace_spark.sinks.sql.deferred import DeferredTables
from tailrace_spark.sinks.sql.merge import VisibleTable
from tailrace_spark.sinks.sql.sink import SqlSink
from tests import mariadb
from tests.support.expiry import Time, expiring
from tests.support.letters import MemoryLetters
from tests.support.shop import WIDE
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.spark.sinks.sql import writing
from tests.unit.tables import table

pytestmark = [pytest.mark.long, pytest.mark.skipif(mariadb.missing() is not None, reason=str(mariadb.missing()))]
OBJECTS = ("__state", "__rows", "__static")


@pytest.fixture
def database() -> Iterator[Database]:
    """A MariaDB's new database in which a table is followed, and nothing is in its tables."""
    with closing(Database(mariadb.new_database())) as database:
        assert write(database, 1).rows == 2
        with database.engine.begin() as connection:
            for name in OBJECTS:
                connection.exec_driver_sql(f"DELETE FROM shop_wide{name}")
        yield database


def write(database: Database, key: int) -> Summary:
    log = Log(WIDE)
    with closing(SqlSink(database.url)) as sink:
        return write_here(sink, [piece([log.insert((key,), (1,), 1, v="a"), log.static((key,), 1, s="s")])])


@pytest.mark.parametrize("made", range(len(OBJECTS) + 1))
def test_a_crash_behind_the_claim_of_a_name(database: Database, made: int) -> None:
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DROP VIEW shop_wide")
        for name in OBJECTS[made:]:
            connection.exec_driver_sql(f"DROP TABLE shop_wide{name}")
    assert write(database, 2) == Summary(2, 2)
    assert database.select("SELECT * FROM shop_wide") == [(2, 1, "s", "a")]


@pytest.mark.parametrize("taken", ["__rows", "__static"])
def test_what_somebody_took_away_is_not_made_anew(database: Database, taken: str) -> None:
    write(database, 1)
    with database.engine.begin() as connection:
        connection.exec_driver_sql(f"DROP TABLE shop_wide{taken}")
    assert write(database, 2).deferred == 2
    assert f"shop_wide{taken}" not in database.names()


def test_rows_lose_a_dropped_column_though_the_first_try_failed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("somebody is in the way")

    narrow = replace(WIDE, regular=(), dropped=(DroppedColumn(WIDE.regular[0], 10),))
    later = Log(narrow).insert((2,), (2,), 20)
    assert writing.write(database, Log(WIDE).update((1,), (1,), 5, v="a")).rows == 1
    with monkeypatch.context() as broken:
        broken.setattr(VisibleTable, "update", fail)
        assert writing.write(database, later).deferred == 1
    assert writing.write(database, later).deferred == 0
    assert database.select("SELECT * FROM shop_wide") == [(2, 2, None)]


def test_what_expires_goes_though_the_first_sweep_failed(database: Database) -> None:
    time = Time()
    with closing(SqlSink(database.url, clock=time)) as sink:
        write_here(sink, [piece([expiring(Log(WIDE).insert((1,), (1,), 5, v="a"), 200)])])
        time.now = 300
        with database.engine.begin() as connection:
            connection.exec_driver_sql("RENAME TABLE shop_wide__rows TO hidden")
        assert sink.sweep() == 0
        with database.engine.begin() as connection:
            connection.exec_driver_sql("RENAME TABLE hidden TO shop_wide__rows")
        assert sink.sweep() == 1
    assert database.select("SELECT * FROM shop_wide") == []


def test_what_is_refused_of_deferred_changes_is_told_though_the_first_try_failed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TakenError("somebody is in the way")

    time, letters, long = Time(), MemoryLetters(), "x" * 2_049  # as a clustering it has no room
    log = Log(table({"id": "int"}, {"c": "text"}, regular={"v": "int"}, keyspace="shop", table_id=UUID(int=7)))
    with closing(SqlSink(database.url, clock=time, letters=letters)) as sink:
        write_here(sink, [piece([log.insert((1,), ("a",), 1, v=1)])])
        with database.engine.begin() as connection:
            connection.exec_driver_sql("RENAME TABLE shop_t__rows TO hidden")
        for clustering in ("b", long):
            assert write_here(sink, [piece([log.insert((1,), (clustering,), 1, v=1)])]).deferred == 1
        with database.engine.begin() as connection:
            connection.exec_driver_sql("RENAME TABLE hidden TO shop_t__rows")
        with monkeypatch.context() as broken:
            broken.setattr(DeferredTables, "release", fail)
            time.now += 100
            sink.sweep()
        time.now += 100
        sink.sweep()
    assert len(letters.all) == 1
    assert database.select("SELECT c FROM shop_t") == [("a",), ("b",)]
