"""What readers, poolers, rights and limits of stores do to a stream: PostgreSQL, PgBouncer, a directory of Delta."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import psycopg
import pytest
import sqlalchemy as sa
from cassandra.concurrent import execute_concurrent_with_args
from deltalake import DeltaTable

from tailrace.local import LocalCassandra, LocalKafka
from tests import pgbouncer, postgres
from tests.field.following import Following, following
from tests.integration.letters import letters_in
from tests.unit.spark.sinks.contract import Database

pytestmark = [pytest.mark.integration, pytest.mark.long]

REFUSED: Final = 4_136
TABLE: Final = "CREATE TABLE #.t (id int PRIMARY KEY, name text) WITH cdc = true"


def test_the_longest_name_stops_no_other_table(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    keyspace, name = f"{keyspace_name}_".ljust(48, "k"), "t" * 222
    lake = tmp_path / "lake"
    sink = {"type": "delta", "path": str(lake), "mode": "current"}
    with following(cassandra, kafka, prefix, keyspace, tmp_path, sink=sink) as followed:
        followed.run(
            f"CREATE TABLE #.{name} (id int PRIMARY KEY, v text) WITH cdc = true", TABLE,
            f"INSERT INTO #.{name} (id, v) VALUES (1, 'a')", "INSERT INTO #.t (id, name) VALUES (2, 'b')",
        )  # fmt: skip
        followed.stream.until(lambda: _shown(lake, "t") == [2] and _shown(lake, "ttt") == [1])
        assert "File name too long" not in followed.stream.log.read_text()


def _shown(lake: Path, begin: str) -> list[int]:
    """The ids in the one table whose name begins so."""
    names = [path for path in lake.glob(f"*.{begin}*") if not path.name.endswith("-state")]
    exact = [path for path in names if path.name.endswith(f".{begin}")] or names
    if len(exact) != 1 or not DeltaTable.is_deltatable(str(exact[0])):
        return []
    return sorted(DeltaTable(str(exact[0])).to_pyarrow_table()["id"].to_pylist())


def test_readers_keep_their_rights_at_alter_and_at_drop(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    url = postgres.new_database()
    view, reader = f"{keyspace_name}_t", f"reader_{keyspace_name}"
    with following(cassandra, kafka, prefix, keyspace_name, tmp_path, sink=url) as followed:
        followed.run(TABLE, "INSERT INTO #.t (id, name) VALUES (1, 'a')")
        followed.until("t", [(1, "a")])
        with followed.database.engine.begin() as connection:
            for statement in (
                f"CREATE ROLE {reader} LOGIN",
                f"GRANT SELECT ON {view} TO {reader}",
                f"COMMENT ON VIEW {view} IS 'ours'",
                f"ALTER VIEW {view} SET (security_barrier = true)",
                f"CREATE VIEW mine AS SELECT name FROM {view}",
                f"GRANT SELECT ON mine TO {reader}",
            ):
                connection.exec_driver_sql(statement)
        theirs = sa.create_engine(sa.make_url(url).set(username=reader))
        followed.run("ALTER TABLE #.t ADD town text", "INSERT INTO #.t (id, name, town) VALUES (2, 'b', 'x')")
        followed.until("t", [(1, "a", None), (2, "b", "x")])
        _require(followed, theirs, view, ["a", "b"])
        followed.run("ALTER TABLE #.t DROP town", "INSERT INTO #.t (id, name) VALUES (3, 'c')")
        followed.until("t", [("a",), ("b",), ("c",)], "name")
        _require(followed, theirs, view, ["a", "b", "c"])
        followed.run("DROP TABLE #.t", TABLE, "INSERT INTO #.t (id, name) VALUES (9, 'z')")
        followed.until("t", [("z",)], "name")
        _require(followed, theirs, view, ["z"])
        theirs.dispose()


def _require(followed: Following, theirs: sa.Engine, view: str, names: list[str]) -> None:
    """The reader reads the view and what was built on it; comment and option are there."""
    with theirs.connect() as connection:
        for name in (view, "mine"):
            rows = connection.exec_driver_sql(f"SELECT name FROM {name} ORDER BY name").scalars()
            assert list(rows) == names
    given = followed.database.select(
        f"SELECT obj_description(oid), CAST(reloptions AS text) FROM pg_class WHERE oid = '{view}'::regclass"
    )
    assert given == [("ours", "{security_barrier=true}")]


@pytest.mark.skipif(pgbouncer.missing() is not None, reason="pgbouncer not found: apt-get install pgbouncer")
def test_a_stream_behind_a_pooler_meets_no_other_client(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """`pool_mode = transaction`; another client of the pool finds the server's own settings."""
    url = postgres.new_database()
    server = Database(url, sa.create_engine(url))
    with (
        pgbouncer.pooled(url) as pooled,
        following(cassandra, kafka, prefix, keyspace_name, tmp_path, sink=pooled) as followed,
    ):
        followed.run(TABLE)
        for number in range(30):  # the driver prepares what has come five times
            followed.run(f"INSERT INTO #.t (id, name) VALUES ({number}, 'a')")
            followed.stream.until(partial(_has, server, f"{keyspace_name}_t", number))
        with psycopg.connect(pooled.replace("+psycopg", ""), prepare_threshold=None) as other:
            settings = ("enable_hashjoin", "jit", "lock_timeout")
            found = [other.execute(f"SHOW {name}").fetchall()[0][0] for name in settings]
        assert found == ["on", "on", "0"]
        assert "prepared statement" not in followed.stream.log.read_text()
        assert server.select("SELECT * FROM tailrace_held_tables") == []
    server.engine.dispose()


def _has(database: Database, view: str, number: int) -> bool:
    return view in database.names() and database.select(f"SELECT id FROM {view} WHERE id = {number}") == [(number,)]


def test_check_names_a_role_that_may_not_create_tables(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    url = sa.make_url(postgres.new_database())
    role = f"writer_{keyspace_name}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN")
    theirs = url.set(username=role).render_as_string(hide_password=False)
    with following(cassandra, kafka, prefix, keyspace_name, tmp_path) as followed:
        settings = followed.agent.settings
        settings.write_text(f"{settings.read_text()}\n[sink.local]\nurl = {json.dumps(theirs)}\n")
        words = followed.agent.command("check", code=1)
        assert "permission denied for schema public: let this user make and alter tables there" in words
    engine.dispose()


def test_thousands_of_refused_rows_are_dead_letters(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> None:
    """Of one batch; keys that are too long for an index, beside rows that are not."""
    options = {"max_offsets_per_trigger": 20_000, "execution": '"driver"'}
    url = postgres.new_database()
    with following(cassandra, kafka, prefix, keyspace_name, tmp_path, sink=url, stream=options) as followed:
        followed.run(
            "CREATE TABLE #.t (id text PRIMARY KEY, name text) WITH cdc = true",
            "INSERT INTO #.t (id, name) VALUES ('first', 'a')",
        )
        followed.until("t", [("first",)], "id")  # what has only begun to start ends by the signal itself
        assert followed.stream.stop() == 0
        insert = followed.session.prepare(f"INSERT INTO {keyspace_name}.t (id, name) VALUES (?, ?)")
        keys = [_long(number) if number % 50 else f"short {number}" for number in range(REFUSED * 50 // 49 + 1)]
        execute_concurrent_with_args(followed.session, insert, [(key, "a") for key in keys], concurrency=64)
        short = sum(len(key) < 100 for key in keys)
        followed.agent.until(lambda: followed.agent.count("changes") > len(keys), 120)
        followed.stream.start()
        followed.stream.until(lambda: len(followed.rows("t", "id")) == 1 + short, 1000)
        assert len(letters_in(kafka, prefix)) == len(keys) - short
        assert "out of shared memory" not in followed.stream.log.read_text()


def _long(number: int) -> str:
    """Text that PostgreSQL cannot make short enough for its index."""
    return Random(number).randbytes(3_000).hex()
