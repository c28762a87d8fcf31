"""A replay or a repair beside a stream: neither undoes what the other one writes, and both know what is there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.position import Position
from tailrace_spark.batch.delivery import MicroBatch, Piece, Summary
from tailrace_spark.sinks.protocol import AGAIN, write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.spark.sinks.sql.locks import SECONDS, WAITING, until_counted

LOG = Log(PLAIN)
OF_A_STREAM = MicroBatch("a stream", 0, here=True)
LATER = MicroBatch("a stream", 1, here=True, fences=False)


def row(number: int, written: int, offset: int) -> Change:
    return with_source(LOG.insert((number,), (), written, v="a"), host="h", position=Position(1, 1, offset))


@pytest.mark.promise("sinks.dead-letters")
def test_a_stream_knows_of_the_first_deletion_that_a_replay_writes(database: Database) -> None:
    with closing(SqlSink(database.url)) as stream, closing(SqlSink(database.url)) as replay:
        write_here(stream, [piece([LOG.insert((1,), (), 1, v="a")])], OF_A_STREAM)
        write_here(replay, [piece([LOG.delete_partition((2,), 10)])], AGAIN)
        write_here(stream, [piece([LOG.insert((2,), (), 5, v="deleted")])], LATER)
    assert database.select("SELECT id FROM shop_plain") == [(1,)]


@pytest.mark.promise("sinks.dead-letters")
def test_a_stream_knows_of_a_truncation_that_a_replay_writes(database: Database) -> None:
    with closing(SqlSink(database.url)) as stream, closing(SqlSink(database.url)) as replay:
        write_here(stream, [piece([row(1, 60, 20)])], OF_A_STREAM)
        write_here(replay, [piece([truncate(PLAIN, "h", 50, Position(1, 1, 9))])], AGAIN)
        write_here(stream, [piece([row(2, 5, 5)])], LATER)
        write_here(stream, [piece([row(3, 70, 25)])], LATER)
    assert database.select("SELECT id FROM shop_plain") == [(3,)]


@pytest.mark.promise("sinks.dead-letters")
@pytest.mark.parametrize("first", ["the stream", "the replay"])
def test_a_row_that_both_write_at_once_has_what_both_wrote(server_database: Database, first: str) -> None:
    """The later one reads the row when the other one has committed."""
    database, written, waits = server_database, threading.Event(), threading.Event()
    stream, replay = SqlSink(database.url), SqlSink(database.url)
    write_here(stream, [piece([LOG.insert((0,), (), 1, v="made")])], OF_A_STREAM)
    sides = [(stream, LATER, LOG.update((0,), (), 3, w=1)), (replay, AGAIN, LOG.update((0,), (), 2, v="b"))]
    (sink, batch, change), (other_sink, other_batch, other_change) = sides if first == "the stream" else sides[::-1]

    def pieces() -> Iterator[Piece]:
        yield piece([change])
        for number in (1, 2):  # both are read ahead while the first one is merged
            yield piece([LOG.insert((number,), (), 1, v="a")])
        written.set()
        assert waits.wait(SECONDS)

    with closing(stream), closing(replay), ThreadPoolExecutor(2) as pool:
        writing = pool.submit(write_here, sink, pieces(), batch)
        assert written.wait(SECONDS)
        merging = pool.submit(write_here, other_sink, [piece([other_change])], other_batch)
        try:
            until_counted(database, WAITING[database.dialect])
        finally:
            waits.set()
        assert [writing.result(SECONDS), merging.result(SECONDS)] == [Summary(3, 3), Summary(1, 1)]
    assert database.select("SELECT * FROM shop_plain WHERE id = 0") == [(0, "b", 1)]
