"""Tasks of the SQL sink beside each other: repeated and late attempts, a newer plan, another driver."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
import sqlalchemy as sa

from tailrace_schemas.errors import FencedError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import MicroBatch, Piece, Summary
from tailrace_spark.sinks.protocol import HereOnlyError, write_here
from tailrace_spark.sinks.sql.sink import SqlSink, SqlWriter
from tailrace_spark.sinks.worker_cache import MOST_OPEN
from tests.postgres import new_database, server_url
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.spark.sinks.in_tasks import SECONDS, attempt, interrupted, planned_by
from tests.unit.spark.sinks.sql.locks import WAITING, until_counted

STREAM = "0d4f8c0f5e0b4dd0a7d4f3f0a1b2c3d4"
FIRST: KafkaPartition = ("t.shop.plain", 0)
SECOND: KafkaPartition = ("t.shop.plain", 1)
ENDS = {FIRST: 100, SECOND: 100}
LOG = Log(PLAIN)
FENCING = MicroBatch(STREAM, 0, here=True)


def batch(number: int) -> MicroBatch:
    return MicroBatch(STREAM, number, ENDS)


def planned(sink: SqlSink, number: int = 0) -> SqlWriter:
    return planned_by(SqlWriter, sink, batch(number), [(1, PLAIN)])


def as_of_another_process(task: SqlWriter, name: str) -> SqlWriter:
    """The task with a connection and a memory of its own, as in another worker process."""
    url = sa.make_url(task.database.url).update_query_dict({"application_name": name})
    return replace(task, database=replace(task.database, url=url.render_as_string(hide_password=False)))


def noted(begun: threading.Event, *pieces: Piece) -> Iterator[Piece]:
    """The pieces; the event is set when the first is asked for."""
    begun.set()
    yield from pieces


@pytest.mark.promise("tasks.attempts")
def test_two_attempts_at_a_partition_come_out_as_one(server_database: Database) -> None:
    """A repeated task beside the one that Spark has given up: both read, merge and write the same rows."""
    if server_database.dialect != "postgresql":
        pytest.skip("two connections are told apart by a name that only PostgreSQL takes")
    rows = [piece([LOG.insert((number,), (), 5, v="new", w=number) for number in range(20)])]
    last = piece([LOG.update((number,), (), 6, v="newer") for number in range(0, 20, 2)])
    with closing(SqlSink(server_database.url)) as sink, ThreadPoolExecutor(1) as pool:
        write_here(sink, [piece([LOG.insert((number,), (), 1, v="old", w=0) for number in range(10)])])
        task = planned(sink)
        with interrupted(as_of_another_process(task, "zombie"), FIRST, *rows, then=last) as end:
            begun = threading.Event()
            repeated = pool.submit(task.write, FIRST, noted(begun, *rows, last))
            until_counted(server_database, WAITING["postgresql"])
            assert not begun.is_set(), "the second attempt reads beside the first"
            assert end().summary == Summary(30, 30)
            assert repeated.result(SECONDS).summary == Summary(30, 0)
    expected = [(number, "newer" if number % 2 == 0 else "new", number) for number in range(20)]
    assert server_database.select("SELECT * FROM shop_plain") == sorted(expected, key=repr)


@pytest.mark.promise("tasks.fence")
def test_tasks_of_an_earlier_plan_write_nothing_behind_a_newer_one(server_database: Database) -> None:
    """One that has begun, and one that begins later; nobody waits for the first."""
    old = piece([LOG.insert((1,), (), 5, v="of the old driver", w=1)])
    with closing(SqlSink(server_database.url)) as dead, closing(SqlSink(server_database.url)) as restarted:
        task = planned(dead)
        with interrupted(task, FIRST, then=old) as end:
            newer = planned(restarted)
            with pytest.raises(FencedError, match=f"another process writes {STREAM}"):
                end()
        with pytest.raises(FencedError):
            task.write(SECOND, iter([piece([LOG.insert((2,), (), 5, v="late", w=2)])]))
        assert newer.write(FIRST, iter([old])).summary == Summary(1, 1)
    assert server_database.select("SELECT * FROM shop_plain") == [(1, "of the old driver", 1)]
    assert server_database.select("SELECT * FROM tailrace_partitions") == [(STREAM, *FIRST, 0, 100)]


def test_a_batch_of_the_drivers_comes_after_the_tasks_of_the_one_before(server_database: Database) -> None:
    with closing(SqlSink(server_database.url)) as sink:
        task = planned(sink)
        write_here(sink, [], FENCING)
        with pytest.raises(FencedError):
            task.write(FIRST, iter([piece([LOG.insert((1,), (), 5, v="late", w=1)])]))
    assert server_database.select("SELECT * FROM shop_plain") == []


@pytest.mark.promise("tasks.one-driver")
def test_of_two_drivers_the_one_that_planned_first_ends(server_database: Database) -> None:
    with closing(SqlSink(server_database.url)) as first, closing(SqlSink(server_database.url)) as second:
        planned(first)
        planned(second)
        with pytest.raises(FencedError, match=f"another process writes {STREAM}"):
            planned(first, 1)
        planned(second, 1)


@pytest.mark.promise("tasks.one-driver", "subscription.shared-reading")
def test_a_sink_goes_on_with_another_checkpoint(server_database: Database) -> None:
    """As a subscription does that joins a shared reading, and goes on alone later."""
    with closing(SqlSink(server_database.url)) as sink:
        planned(sink)
        for stream in ("of a member", "of the next checkpoint"):
            write_here(sink, [], MicroBatch(stream, 1, here=True))
            sink.batch_write(replace(batch(1), stream=stream)).writer.write(FIRST, iter([piece([])]))
        with closing(SqlSink(server_database.url)) as second:
            write_here(second, [], MicroBatch("of the next checkpoint", 1, here=True))
        with pytest.raises(FencedError, match="another process writes of the next checkpoint"):
            write_here(sink, [], MicroBatch("of the next checkpoint", 1, here=True))


@pytest.mark.promise("tasks.one-driver")
def test_a_plan_that_failed_is_made_again(server_database: Database) -> None:
    """Its transaction is undone, so the token of the plan before is the newest one still."""

    def broken() -> Iterator[tuple[int, Table]]:
        yield 1, PLAIN
        raise ConnectionError("the database is gone")

    with closing(SqlSink(server_database.url)) as sink:
        planned(sink)
        for _ in range(2):
            with pytest.raises(ConnectionError):
                sink.batch_write(batch(1), broken)  # type: ignore[arg-type]  # a generator that ends in an error
        planned(sink, 1)


def test_a_tasks_words_have_no_password(server_database: Database) -> None:
    with closing(SqlSink(server_database.url)) as sink:
        task = planned(sink)
    secret = replace(task, database=replace(task.database, url="postgresql://me:sesame@127.0.0.1/db"))
    assert "sesame" not in repr(secret) + str(secret)


def test_changes_of_a_refused_table_are_deferred_by_all_tasks_until_it_is_mended(server_database: Database) -> None:
    def rows(*numbers: int) -> Iterator[Piece]:
        return iter([piece([LOG.insert((number,), (), 5, v="a", w=number) for number in numbers])])

    now = 100.0
    with closing(SqlSink(server_database.url, clock=lambda: now)) as sink:
        planned(sink)
        with server_database.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE shop_plain__state RENAME TO elsewhere")
        task = planned(sink, 1)
        results = [task.write(FIRST, rows(1, 2)), task.write(SECOND, rows(3))]
        summary = sink.batch_write(batch(1)).commit(results)
        assert (summary.changes, summary.deferred) == (0, 3)
        assert planned_by(SqlWriter, sink, batch(2)).refused.keys() == {PLAIN.id}
        with server_database.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO shop_plain__state")
        now += 100
        assert planned_by(SqlWriter, sink, batch(3)).refused == {}
    assert server_database.select("SELECT * FROM shop_plain") == [(number, "a", number) for number in (1, 2, 3)]


def test_a_truncation_that_a_task_meets_is_the_drivers(server_database: Database) -> None:
    with closing(SqlSink(server_database.url, clock=lambda: 100)) as sink:
        task = planned(sink)
        for number, partition in enumerate((FIRST, SECOND)):
            task.write(partition, iter([piece([LOG.insert((number,), (), 5, v="a", w=0)])]))
        truncated = piece([LOG.insert((3,), (), 5, v="c", w=0), truncate(PLAIN, "h", 9_000_000, Position(1, 5, 10**6))])
        behind = piece([with_source(LOG.insert((2,), (), 4, v="b", w=0), host="h", position=Position(1, 5, 10**6 + 1))])
        # The other partition's task may have written by then; what it wrote comes again.
        later = planned(sink, 1)
        later.write(FIRST, iter([behind]))
        with pytest.raises(HereOnlyError, match=r"a truncation of shop\.plain"):
            attempt(later, SECOND, [truncated])
        assert len(server_database.select("SELECT * FROM shop_plain")) == 3
        write_here(sink, [truncated, behind], FENCING)
        assert server_database.select("SELECT * FROM shop_plain") == [(2, "b", 0)]
        # Tasks know of it from then on.
        old = with_source(LOG.insert((4,), (), 10**15, v="old", w=0), host="h", position=Position(1, 5, 10**6))
        planned(sink, 2).write(FIRST, iter([piece([old])]))
    assert server_database.select("SELECT * FROM shop_plain") == [(2, "b", 0)]


@pytest.mark.slow
def test_a_worker_that_serves_many_databases_has_connections_to_the_last_ones() -> None:
    """A server allows a hundred; Spark's workers outlive the streams that they served."""
    count = MOST_OPEN + 4
    urls = [new_database() for _ in range(count)]
    for url in urls:
        with closing(SqlSink(url)) as sink:
            planned(sink).write(FIRST, [piece([LOG.insert((1,), (), 5, v="a", w=1)])])
    names = ", ".join(f"'{sa.make_url(url).database}'" for url in urls[:-MOST_OPEN])
    last = sa.make_url(urls[-1]).database
    with closing(Database(server_url())) as server:
        # They end a moment later.
        until_counted(server, f"SELECT count(*) = 0 FROM pg_stat_activity WHERE datname IN ({names})")
        assert server.select(f"SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = '{last}'") == [(True,)]
