"""Writers of the SQL sink that have a successor: one that was stopped, one that comes back later, one with locks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
import sqlalchemy as sa

from tailrace_schemas.errors import FencedError, ServiceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import MicroBatch, Piece, SinkProgress
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink, SqlWriter
from tailrace_spark.sinks.state_store import engine
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.spark.sinks.in_tasks import planned_by
from tests.unit.spark.sinks.stopped import stopped_before
from tests.unit.tables import table

NAME = "t.sink.orders-17"
PARTITION: KafkaPartition = ("t.shop.plain", 0)
LOG = Log(PLAIN)
OTHER = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="other", table_id=UUID(int=7))
WRITES = r'(UPDATE|INSERT INTO) ["`]?shop_plain__state'
PROCESS = {"postgresql": "application_name", "mysql": "program_name"}
Writing = Callable[[SqlSink, str, Piece], Callable[[], object]]


def claimed(database: Database, name: str = NAME) -> SqlSink:
    """A sink of a process of its own."""
    sink = SqlSink(database.url)
    sink.claim(name)
    return sink


@pytest.fixture
def writers(database: Database) -> Iterator[tuple[SqlSink, SqlSink]]:
    """The first of which has written row 1."""
    with closing(claimed(database)) as first, closing(claimed(database)) as second:
        write_here(first, [piece([LOG.insert((1,), (), 1, v="old", w=0)])])
        yield first, second


def by_driver(sink: SqlSink, checkpoint: str, some: Piece) -> Callable[[], object]:
    return partial(write_here, sink, [some], MicroBatch(checkpoint, 0, here=True))


def by_task(sink: SqlSink, checkpoint: str, some: Piece) -> Callable[[], object]:
    """In another worker process."""
    task = planned_by(SqlWriter, sink, MicroBatch(checkpoint, 0, {PARTITION: 100}), [(1, PLAIN), (2, OTHER)])
    url = sa.make_url(task.database.url)
    url = url.update_query_dict({PROCESS[url.get_backend_name()]: checkpoint})
    own = replace(task, database=replace(task.database, url=url.render_as_string(hide_password=False)))
    return partial(own.write, PARTITION, iter([some]))


@pytest.mark.promise("sink.successor")
@pytest.mark.parametrize("writing", [by_driver, by_task], ids=["driver", "task"])
def test_a_writer_that_was_stopped_before_it_writes_leaves_its_successors_rows(
    server_database: Database, writing: Writing
) -> None:
    """Also where the successor has another checkpoint, and where a table is made behind what was read."""
    stale = piece([LOG.update((1,), (), 2, w=1), Log(OTHER).insert((1,), (), 2)])
    with closing(claimed(server_database)) as first, closing(claimed(server_database)) as second:
        write_here(first, [piece([LOG.insert((1,), (), 1, v="old", w=0)])])
        with stopped_before(WRITES, writing(first, "before reset", stale)) as go_on:
            writing(second, "after reset", piece([LOG.update((1,), (), 3, v="new")]))()
            with pytest.raises(FencedError, match=f"another process writes {NAME}"):
                go_on()
        assert server_database.select("SELECT * FROM shop_plain") == [(1, "new", 0)]
        with pytest.raises(FencedError):
            write_here(first, [stale])
        write_here(second, [stale])
    assert server_database.select("SELECT * FROM shop_plain") == [(1, "new", 1)]


@pytest.mark.promise("sink.successor")
def test_a_writer_with_a_successor_changes_nothing_any_more(
    database: Database, writers: tuple[SqlSink, SqlSink]
) -> None:
    first, second = writers
    pieces = [piece([LOG.update((1,), (), 2, w=1)])]
    second.keep_progress(SinkProgress("after reset", 0, {}))
    before = database.everything()
    attempts: list[Callable[[], object]] = [
        lambda: write_here(first, pieces),
        first.sweep,
        lambda: first.keep_progress(SinkProgress("before reset", 0, {})),
        lambda: first.amend(PLAIN, {}, {}),
        lambda: write_here(first, [], MicroBatch("before reset", 0, here=True)),
        lambda: first.batch_write(MicroBatch("before reset", 0), lambda: [(2, OTHER)]),
    ]
    for attempt in (*attempts, *attempts):
        with pytest.raises(FencedError):
            attempt()
    assert database.everything() == before


def test_writers_of_other_names_and_without_one_write_beside_each_other(
    database: Database, writers: tuple[SqlSink, SqlSink]
) -> None:
    first, _ = writers
    others = [claimed(database, "t.sink.orders-18"), claimed(database, f"{'t' * 99}.sink.x"), SqlSink(database.url)]
    with ExitStack() as stack:
        for sink in others:
            stack.enter_context(closing(sink))
        for number, sink in enumerate([*others, first]):
            write_here(sink, [piece([LOG.insert((number,), (), 5, v="a", w=number)])])
    assert database.select("SELECT id FROM shop_plain") == [(0,), (1,), (2,), (3,)]


def test_a_name_that_is_claimed_again_by_its_owner_stays_its_own(
    database: Database, writers: tuple[SqlSink, SqlSink]
) -> None:
    """As by a subscription that joins a shared reading: it goes on with what it has."""
    first, _ = writers
    for number in range(2, 4):
        first.claim(NAME)
        write_here(first, [piece([LOG.insert((number,), (), 5, v="a")])])
    assert database.select("SELECT token FROM tailrace_fences WHERE token > 0") == [(1,)]


@pytest.mark.parametrize("lost", ["emptied", "restored"])
def test_a_database_that_was_emptied_or_restored_is_written_at_the_next_attempt(
    database: Database, writers: tuple[SqlSink, SqlSink], lost: str
) -> None:
    first, _ = writers
    if lost == "emptied":
        database.clear()
    else:
        with database.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE tailrace_fences SET token = 0")
    pieces = [piece([LOG.insert((2,), (), 5, v="a", w=2)])]
    with pytest.raises(ServiceError, match=f"no such table|exist|restored from a backup, while {NAME} wrote"):
        write_here(first, pieces)
    write_here(first, pieces)
    assert database.select("SELECT * FROM shop_plain WHERE id = 2") == [(2, "a", 2)]


@pytest.mark.promise("sink.successor")
def test_a_writer_that_was_stopped_with_locks_holds_its_successor_up_for_a_while(
    server_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "IDLE_SECONDS", 1)
    old, new = piece([LOG.update((1,), (), 2, w=1)]), piece([LOG.update((1,), (), 3, v="new")])
    with closing(claimed(server_database)) as first, closing(claimed(server_database)) as second:
        write_here(first, [piece([LOG.insert((1,), (), 1, v="old", w=0)])])
        with stopped_before("SELECT tailrace_fences", partial(write_here, first, [old])) as go_on:
            write_here(second, [new])
            with pytest.raises(ServiceError):
                go_on()
        with pytest.raises(FencedError):
            write_here(first, [old])
    assert server_database.select("SELECT * FROM shop_plain") == [(1, "new", 0)]
