"""What every engine of a database does before anybody uses it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, ProgrammingError

from tailrace_spark.sinks.state_store.bulk import fetch, stage
from tailrace_spark.sinks.state_store.engine import is_of_one_table, is_pooled, may_try_again, open_engine, remedy
from tailrace_spark.sinks.state_store.state_table import KEYS
from tests import mariadb, pgbouncer, postgres
from tests.unit.spark.sinks.contract import Database


class Said(Exception):
    """What a driver raises, with PostgreSQL's code."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(("sqlstate", "of_table"), [("26000", False), ("42P05", False), ("42P01", True)])
def test_a_pooler_s_faults_are_no_table_s(sqlstate: str, of_table: bool) -> None:
    """Of a prepared statement that is not there, or already; of a relation that is missing they are."""
    error = ProgrammingError("SELECT 1", None, Said(sqlstate))
    assert is_of_one_table(error) == of_table
    assert ("a pooler" in remedy(error)) is not of_table


@pytest.mark.slow
def test_many_that_open_a_new_sqlite_file_at_once_all_get_it(tmp_path: Path) -> None:
    """SQLite tells all but one of those that ask for its WAL that the file is locked, at once and not after its wait.

    Forty files: one in sixteen had a refusal before anybody asked again.
    """
    together = Barrier(8)

    def use(file: Path) -> object:
        with disposing(open_engine(f"sqlite:///{file}")) as engine:
            together.wait()
            with engine.begin() as connection:
                return connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()

    with ThreadPoolExecutor(8) as pool:
        for number in range(40):
            assert list(pool.map(use, [tmp_path / f"{number}.db"] * 8)) == ["wal"] * 8


@pytest.mark.slow
def test_texts_are_texts_in_a_postgresql_database_without_an_encoding() -> None:
    """SQL_ASCII: what `initdb` makes where the machine's locale is C."""
    url = sa.make_url(postgres.new_database())
    name = f"{url.database}_ascii"
    with disposing(sa.create_engine(url, isolation_level="AUTOCOMMIT")) as engine, engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    location = url.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
    with disposing(open_engine(location)) as engine, engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (v text)")
        connection.execute(sa.text("INSERT INTO t VALUES (:v)"), {"v": "é€"})
        assert connection.exec_driver_sql("SELECT v FROM t").scalar_one() == "é€"
        assert sa.inspect(connection).get_table_names() == ["t"]


@pytest.mark.slow
def test_nothing_stays_in_a_session_of_postgresql() -> None:
    """A pooler gives it to others."""
    with disposing(open_engine(postgres.new_database())) as engine, engine.connect() as connection:
        assert not is_pooled(connection)
        names = ("jit", "enable_hashjoin", "enable_mergejoin", "lock_timeout", "client_min_messages")
        driver: Any = connection.connection.driver_connection
        assert [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in names] == [
            *["off"] * 3,
            "10s",
            "warning",
        ]
        connection.commit()
        assert [driver.execute(f"SHOW {name}").fetchone()[0] for name in names] == [*["on"] * 3, "0", "notice"]
        driver.rollback()


@pytest.mark.slow
@pytest.mark.skipif(pgbouncer.missing() is not None, reason="pgbouncer not found: apt-get install pgbouncer")
def test_clients_of_a_pooler_do_not_meet_each_other() -> None:
    """Two that share one connection find neither prepared statements nor temporary tables, and leave none."""
    url = postgres.new_database()
    with (
        pgbouncer.pooled(url) as pooled,
        disposing(open_engine(pooled)) as one,
        disposing(open_engine(pooled)) as other,
        disposing(sa.create_engine(url)) as direct,
        direct.connect() as plain,
    ):
        for number in range(8):  # the driver prepares what has come five times
            for engine in (one, other):
                with engine.begin() as connection:
                    assert is_pooled(connection)
                    stage(connection, KEYS, [(b"k", b"c")])
                    assert connection.execute(sa.select(KEYS.c.key)).all() == [(b"k",)]
                    assert fetch(connection, "SELECT %b::int", [number]) == [(number,)]
        temporary = "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'"
        assert plain.exec_driver_sql(temporary).scalar() == 0


def test_no_savepoint_stays_that_was_rolled_back_to(database: Database) -> None:
    """Of thousands within each other PostgreSQL is out of shared memory, and takes minutes before."""
    with disposing(open_engine(database.url)) as engine, engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (k int)")
        refused = connection.begin_nested()
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
        refused.rollback()
        assert connection.exec_driver_sql("SELECT k FROM t").all() == []
        with pytest.raises(DBAPIError, match=r"(?i)savepoint"):
            connection.exec_driver_sql(f"ROLLBACK TO SAVEPOINT {refused._savepoint}")


@pytest.mark.slow
@pytest.mark.skipif(mariadb.missing() is not None, reason=mariadb.missing() or "")
def test_a_lock_is_not_asked_for_again_where_waiting_in_vain_undid_the_transaction() -> None:
    """By innodb_rollback_on_timeout: what a batch had written before, into other tables, would be lost."""
    with (
        mariadb.mortal({"innodb-rollback-on-timeout": "1"}) as server,
        disposing(open_engine(server.new_database())) as engine,
        engine.connect() as holder,
        engine.connect() as connection,
    ):
        holder.exec_driver_sql("CREATE TABLE t (k int PRIMARY KEY, v int)")
        holder.exec_driver_sql("INSERT INTO t VALUES (1, 0), (2, 0)")
        holder.commit()
        holder.exec_driver_sql("UPDATE t SET v = 1 WHERE k = 1")
        connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")
        connection.exec_driver_sql("UPDATE t SET v = 2 WHERE k = 2")
        with pytest.raises(DBAPIError) as refused:
            connection.exec_driver_sql("UPDATE t SET v = 2 WHERE k = 1")
        assert connection.exec_driver_sql("SELECT v FROM t WHERE k = 2").scalar_one() == 0
        assert not may_try_again(connection, refused.value)
        assert not is_of_one_table(refused.value)


@contextmanager
def disposing(engine: sa.Engine) -> Iterator[sa.Engine]:
    try:
        yield engine
    finally:
        engine.dispose()
