"""Two streams that write the same rows at once, as where one was not stopped: the later one merges; nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.spark.sinks.sql.locks import SECONDS, WAITING, until_counted


def test_a_row_that_another_writer_puts_meanwhile_is_merged(database: Database) -> None:
    if database.dialect not in WAITING:
        pytest.skip("SQLite has one writer at a time")
    log, asked = Log(PLAIN), threading.Event()
    idle = {
        "postgresql": "pg_stat_activity WHERE state = 'idle in transaction'",
        "mysql": "information_schema.innodb_trx",
    }

    def pieces() -> Iterator[Piece]:
        yield piece([log.insert((1,), (), 1, v="a", w=1)])
        yield piece([log.insert((2,), (), 1, v="a")])
        assert asked.wait(SECONDS)

    with (
        closing(SqlSink(database.url)) as first,
        closing(SqlSink(database.url)) as second,
        ThreadPoolExecutor(2) as pool,
    ):
        write_here(first, [piece([log.insert((0,), (), 1, v="made")])])
        pool.submit(write_here, first, pieces())
        until_counted(database, f"SELECT count(*) FROM {idle[database.dialect]}")
        merging = pool.submit(write_here, second, [piece([log.update((1,), (), 2, v="b")])])
        try:
            until_counted(database, WAITING[database.dialect])
        finally:
            asked.set()
        assert merging.result(SECONDS) == Summary(1, 1)
    assert database.select("SELECT * FROM shop_plain WHERE id = 1") == [(1, "b", 1)]
