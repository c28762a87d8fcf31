"""A table that the database refuses for now: its changes are kept, all others go on, and nothing is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from uuid import UUID

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.merge.batch_changes import gather
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.deferred import DeferredTables, deferred_change, gather_deferred
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.snapshot.read_back import Doubt, answer
from tests.properties import examples
from tests.support.expiry import Time
from tests.support.shop import PLAIN, one_change
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.changes import assignments
from tests.unit.spark.sinks.contract import LONGEST_TOPIC, Database, delivered, piece
from tests.unit.spark.sinks.sql.locks import WAITING, until_counted
from tests.unit.spark.sinks.sql.writing import write
from tests.unit.tables import table

OTHER = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="other", table_id=UUID(int=7))
STREAM = Assignment(1_000, bytes(15) + b"\x01")


def execute(database: Database, *statements: str) -> None:
    with database.engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_two_tasks_that_keep_changes_at_once_keep_the_columns_of_both(server_database: Database) -> None:
    """One has heard of a column that was added, and commits first."""
    wider = replace(PLAIN, regular=table({"id": "int"}, regular={"v": "text", "w": "int", "x": "text"}).regular)
    first, second = Log(wider).insert((1,), (), 1, x="new"), Log(PLAIN).insert((2,), (), 1, v="a")

    def keep(connection: sa.Connection, change: Change, announced: int) -> None:
        deferred = [deferred_change(delivered(change))]
        DeferredTables().keep(connection, change.table, announced, deferred, "why", 0)

    def keep_second() -> None:
        with server_database.engine.begin() as connection:
            keep(connection, second, 1)

    with closing(SqlSink(server_database.url)) as sink:
        sink.progress("makes its tables")
    with ThreadPoolExecutor(1) as threads:
        with server_database.engine.begin() as connection:
            keep(connection, first, 2)
            other = threads.submit(keep_second)
            until_counted(server_database, WAITING[server_database.dialect])
        other.result()
    with closing(SqlSink(server_database.url)) as sink:
        assert sink.sweep() == 2
    assert server_database.select("SELECT * FROM shop_plain") == [(1, None, None, "new"), (2, "a", None, None)]


@pytest.mark.slow
def test_what_is_too_large_to_be_deferred_holds_up_no_other_table(database: Database) -> None:
    blobs = table({"id": "int"}, regular={"b": "blob"}, keyspace="shop", name="blobs", table_id=UUID(int=8))
    log, other, refused = Log(blobs), Log(OTHER), int(database.dialect == "mysql")
    write(database, log.insert((1,), (), 1, b=b"a"), other.insert((1,), (), 1, v="a"))
    execute(database, "ALTER TABLE shop_blobs__state RENAME TO elsewhere")
    large, small = log.insert((2,), (), 1, b=bytes(9 << 20)), log.insert((3,), (), 1, b=b"b")
    summary = write(database, large, small, other.update((1,), (), 2, v="b"))
    assert summary == Summary(1, 1, refused, 2 - refused)


def test_a_table_that_was_taken_away_waits_and_the_others_go_on(database: Database) -> None:
    plain, other, time = Log(PLAIN), Log(OTHER), Time(100)
    sink = SqlSink(database.url, clock=time)
    write_here(sink, [piece([plain.insert((1,), (), 1, v="a"), other.insert((1,), (), 1, v="a")])])
    execute(database, "ALTER TABLE shop_plain__state RENAME TO elsewhere")
    batch = [
        piece([
            plain.update((1,), (), 2, w=5), other.update((1,), (), 2, v="b"), plain.insert((2,), (), 2, v="z"),
            plain.delete((1,), (), 1), plain.delete_partition((3,), 9), plain.insert((3,), (), 8, v="late"),
        ], STREAM),
    ]  # fmt: skip
    assert write_here(sink, batch) == Summary(1, 1, 0, 5)
    assert database.select("SELECT id, v FROM shop_other") == [(1, "b")]
    assert database.select("SELECT v, w FROM shop_plain") == [("a", None)]
    time.now += 1
    assert write_here(sink, batch) == Summary(1, 0, 0, 5)  # delivered again: kept once
    assert database.select("SELECT count(*) FROM tailrace_deferred_changes") == [(5,)]
    [(name, since)] = database.select("SELECT name, since FROM tailrace_deferred_tables")
    assert (name, since) == ("shop.plain", 100)
    execute(database, "ALTER TABLE elsewhere RENAME TO shop_plain__state")
    assert write_here(sink, []) == Summary()  # it was tried a moment ago
    assert database.select("SELECT count(*) FROM tailrace_deferred_changes") == [(5,)]
    time.now += 10
    assert sink.sweep() == 2
    assert database.select("SELECT * FROM shop_plain") == [(1, None, 5), (2, "z", None)]
    assert database.select("SELECT count(*) FROM tailrace_deferred_changes") == [(0,)]
    assert database.select("SELECT name FROM tailrace_deferred_tables") == []
    assert write_here(sink, batch) == Summary(6, 0, 0)
    sink.close()


def test_what_an_earlier_process_kept_is_merged_by_the_next(database: Database) -> None:
    execute(database, "CREATE TABLE shop_plain (mine INTEGER)")
    log, wider = Log(PLAIN), replace(PLAIN, regular=(*PLAIN.regular, OTHER.regular[0]))
    wider = table({"id": "int"}, regular={"v": "text", "w": "int", "x": "int"}, keyspace="shop", name="plain")
    for change in (log.insert((1,), (), 1, v="a"), Log(wider).update((1,), (), 2, x=1)):
        assert write(database, change) == Summary(0, 0, 0, 1)
    execute(database, "DROP TABLE shop_plain")
    write(database, log.update((1,), (), 3, w=3))
    assert database.select("SELECT id, v, w, x FROM shop_plain") == [(1, "a", 3, 1)]


def test_what_another_process_kept_is_merged_while_the_first_one_runs(database: Database) -> None:
    """As what a replay keeps, or a task of a batch that another task brought to no end."""
    log, time = Log(PLAIN), Time(100)
    with closing(SqlSink(database.url, clock=time)) as sink:
        write_here(sink, [piece([log.insert((1,), (), 1, v="a")])])
        execute(database, "ALTER TABLE shop_plain__state RENAME TO elsewhere")
        assert write(database, log.insert((2,), (), 1, v="b")) == Summary(0, 0, 0, 1)
        execute(database, "ALTER TABLE elsewhere RENAME TO shop_plain__state")
        assert sink.sweep() == 1
    assert database.select("SELECT * FROM shop_plain") == [(1, "a", None), (2, "b", None)]
    assert database.select("SELECT count(*) FROM tailrace_deferred_changes") == [(0,)]


def test_what_waits_of_another_stream_s_table_is_left_to_that(database: Database) -> None:
    """Its filters are its own."""
    with closing(SqlSink(database.url)) as sink:
        sink.follow(lambda table: table.id == OTHER.id)
        write_here(sink, [piece([Log(OTHER).insert((1,), (), 1, v="a")])])
        execute(database, "CREATE TABLE shop_plain (mine INTEGER)")
        assert write(database, Log(PLAIN).insert((2,), (), 1, v="b")) == Summary(0, 0, 0, 1)
        execute(database, "DROP TABLE shop_plain")
        assert sink.sweep() == 0
    assert database.select("SELECT count(*) FROM tailrace_deferred_changes") == [(1,)]


def test_a_right_that_was_taken_away(database: Database) -> None:
    if database.dialect != "postgresql":
        pytest.skip("only PostgreSQL's tests make a second user")
    log, time = Log(PLAIN), Time(100)
    sink = SqlSink(database.url, clock=time)
    write_here(sink, [piece([log.insert((1,), (), 1, v="a"), Log(OTHER).insert((1,), (), 1, v="a")])])
    sink.close()
    user = "writer_" + str(sa.make_url(database.url).database)
    rights = [f"GRANT ALL ON {name} TO {user}" for name in database.names()]
    execute(
        database, f"CREATE ROLE {user} LOGIN", *rights, f"GRANT ALL ON SCHEMA public TO {user}",
        f"REVOKE ALL ON shop_plain__rows FROM {user}",
    )  # fmt: skip
    url = sa.make_url(database.url).set(username=user).render_as_string(hide_password=False)
    sink = SqlSink(url, clock=time)
    assert write_here(sink, [piece([log.update((1,), (), 2, w=2), Log(OTHER).insert((2,), (), 1, v="b")])]) == Summary(
        1, 1, 0, 1
    )
    [(reason,)] = database.select("SELECT reason FROM tailrace_deferred_tables")
    assert "permission denied" in reason
    assert "let this user" in reason
    execute(database, f"GRANT ALL ON shop_plain__rows TO {user}")
    time.now += 10
    assert write_here(sink, []) == Summary()
    assert database.select("SELECT * FROM shop_plain") == [(1, "a", 2)]
    sink.close()
    execute(database, f"DROP OWNED BY {user}", f"DROP ROLE {user}")


def test_a_database_that_takes_nothing_holds_the_batch(database: Database) -> None:
    sink = SqlSink(database.url)
    write_here(sink, [piece([Log(PLAIN).insert((1,), (), 1, v="a")])])
    execute(database, "DROP TABLE tailrace_deferred_tables", "ALTER TABLE shop_plain__state RENAME TO elsewhere")
    with pytest.raises(ServiceError, match="delivered again"):
        write_here(sink, [piece([Log(PLAIN).insert((2,), (), 1, v="a")])])
    sink.close()


@pytest.mark.parametrize("upto", [Position(1, 5, 10**6), None], ids=["by positions", "by write times"])
def test_a_truncation_of_a_table_that_waits(database: Database, upto: Position | None) -> None:
    log, time = Log(PLAIN), Time(100)
    sink = SqlSink(database.url, clock=time)

    def written(id: int, at: int, *, behind: bool) -> Change:
        place = Position(1, 5, 10**6 + 1 if behind else 10**6)
        return with_source(log.insert((id,), (), at, v="a"), host="h", position=place)

    write_here(sink, [piece([written(1, 1, behind=False), written(2, 2, behind=False)])])
    execute(database, "ALTER TABLE shop_plain__state RENAME TO elsewhere")
    write_here(sink, [piece([written(3, 3, behind=False), written(4, 4, behind=False), log.delete_partition((5,), 5)])])
    assert database.select("SELECT count(*) FROM tailrace_deferred_changes") == [(3,)]
    truncation = truncate(PLAIN, "h", 10, upto)
    batch = [piece([written(5, 20, behind=False), truncation, written(6, 20, behind=True)])]
    write_here(sink, batch)
    write_here(sink, batch)  # delivered again
    sink.close()
    execute(database, "ALTER TABLE elsewhere RENAME TO shop_plain__state")
    time.now += 10
    sink = SqlSink(database.url, clock=time)
    write_here(sink, [piece([written(7, 21, behind=True), written(8, 22, behind=False)])])
    shown = [(6,), (7,)] if upto is not None else [(5,), (6,), (7,), (8,)]
    assert database.select("SELECT id FROM shop_plain") == shown
    assert database.select("SELECT count(*) FROM tailrace_deferred_changes") == [(0,)]
    sink.close()


@pytest.mark.promise("snapshots.read-back")
def test_what_else_has_the_place_of_a_change_is_kept_beside_it(database: Database) -> None:
    """A row that was read back, and a change of a topic that was made again; the place is of the longest."""
    log, time = Log(PLAIN), Time(100)
    sink = SqlSink(database.url, clock=time)
    write_here(sink, [piece([log.update((1,), (), 1, v="a")])])
    execute(database, "ALTER TABLE shop_plain__state RENAME TO elsewhere")
    removal = delivered(log.update((1,), (), 2, v=None))
    removal = replace(removal, record_id=replace(removal.record_id, topic=LONGEST_TOPIC))
    seen = answer(Doubt(removal, 2), ["v", "w"], [None, None], 90_000_000)
    assert seen is not None
    again = replace(removal, change=log.insert((2,), (), 3, v="b"))
    batch = [Piece((removal,)), Piece((seen,)), Piece((again,))]
    assert write_here(sink, batch) == Summary(0, 0, 0, 3)
    assert write_here(sink, batch) == Summary(0, 0, 0, 3)  # delivered again: kept once
    assert database.select("SELECT count(*) FROM tailrace_deferred_changes") == [(3,)]
    execute(database, "ALTER TABLE elsewhere RENAME TO shop_plain__state")
    time.now += 10
    sink.sweep()
    assert database.select("SELECT * FROM shop_plain") == [(1, None, None), (2, "b", None)]
    sink.close()


@pytest.mark.slow
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(one_change, assignments), min_size=1, max_size=6))
def test_what_is_kept_is_what_was_said(changes: list[tuple[Change, Assignment | None]]) -> None:
    all_of_them = [delivered(change, assignment) for change, assignment in changes]
    kept, said = gather_deferred([deferred_change(one) for one in all_of_them]), gather(all_of_them)
    assert kept.deletions == {key: one for key, one in said.deletions.items() if one.deletion or one.ranges}
    assert kept.statics == said.statics
    assert {key: (one.clustering, one.state) for key, one in kept.rows.items()} == {
        key: (one.clustering, one.state) for key, one in said.rows.items() if not one.state.empty
    }
