"""What time alone changes in the tables: cells and rows that expire, truncations that all hosts know of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.cql.values import codec
from tailrace_schemas.position import Position
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.support.expiry import SECOND, Time
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.tables import table


@pytest.fixture
def time() -> Time:
    return Time(100)


def test_counters_are_totals(database: Database) -> None:
    clicks = replace(
        table({"id": "int"}, regular={"n": "counter"}, keyspace="shop", name="clicks"), flags=frozenset({"counter"})
    )

    def shard(host: int, clock: int, count: int) -> bytes:
        return bytes(2) + bytes(15) + bytes((host,)) + clock.to_bytes(8, "big") + count.to_bytes(8, "big", signed=True)

    def change(at: int, context: bytes) -> Change:
        update = Log(clicks).update((1,), (), at)
        return replace(
            update,
            cells=(replace(Log(PLAIN).update((1,), (), at, w=1).cells[0], column=clicks.regular[0], value=context),),
        )

    assert codec(clicks.regular[0].type) is not None
    sink = SqlSink(database.url)
    write_here(sink, [piece([change(1, shard(1, 1, 5)), change(2, shard(2, 1, 2**40))])])
    write_here(sink, [piece([change(3, shard(1, 2, -7)), change(1, shard(1, 1, 5))])])
    assert database.select("SELECT * FROM shop_clicks") == [(1, 2**40 - 7)]
    sink.close()


def test_what_a_purge_forgot_does_not_hold_back_what_comes_behind_a_truncation(database: Database, time: Time) -> None:
    log, sink = Log(PLAIN), SqlSink(database.url, clock=time, merge_horizon=10)
    write_here(sink, [piece([log.insert((1,), (), 40 * SECOND, v="before"), log.delete((2,), (), 41 * SECOND)])])
    time.now = 200
    sink.sweep()
    assert write_here(sink, [piece([log.insert((2,), (), 40 * SECOND, v="late")])]).dead_letters == 1
    truncation = truncate(PLAIN, "a", 150 * SECOND, Position(1, 5, 20))
    behind = with_source(log.insert((2,), (), 40 * SECOND, v="again"), host="a", position=Position(1, 5, 21))
    assert write_here(sink, [piece([truncation, behind])]).dead_letters == 0
    assert database.select("SELECT id, v FROM shop_plain") == [(2, "again")]
    sink.close()
