"""What time alone changes in the tables: cells and rows that expire, truncations that all hosts know of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace_schemas.change import Change
from tailrace_schemas.cql.values import codec
from tailrace_schemas.position import Position
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.sinks.writing import write_here
from tests.support.expiry import SECOND, Time, expiring
from tests.support.shop import PLAIN, WIDE
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.tables import table


@pytest.fixture
def time() -> Time:
    return Time(100)


def test_what_expires_goes_when_it_is_swept(database: Database, time: Time) -> None:
    log, sink = Log(PLAIN), SqlSink(database.url, clock=time)
    write_here(sink, [piece([log.insert((1,), (), 1, v="stays"), expiring(log.update((1,), (), 2, w=5), 110)])])
    write_here(
        sink, [piece([expiring(log.insert((2,), (), 1, v="a"), 105), expiring(log.update((2,), (), 1, w=7), 120)])]
    )
    assert database.select("SELECT * FROM shop_plain") == [(1, "stays", 5), (2, "a", 7)]
    assert sink.sweep() == 0
    time.now = 105
    assert sink.sweep() == 1
    assert database.select("SELECT * FROM shop_plain") == [(1, "stays", 5), (2, None, 7)]
    time.now = 130
    assert sink.sweep() == 2
    assert database.select("SELECT * FROM shop_plain") == [(1, "stays", None)]
    assert sink.sweep() == 0
    write_here(sink, [piece([log.update((2,), (), 3, v="again")])])
    assert database.select("SELECT * FROM shop_plain") == [(1, "stays", None), (2, "again", None)]
    sink.close()


def test_what_had_expired_when_it_came_is_never_shown(database: Database, time: Time) -> None:
    log, sink = Log(PLAIN), SqlSink(database.url, clock=time)
    write_here(
        sink, [piece([expiring(log.insert((1,), (), 1, v="old"), 99), expiring(log.update((2,), (), 1, w=1), 100)])]
    )
    assert database.select("SELECT * FROM shop_plain") == []
    # It beats what is older nevertheless.
    write_here(sink, [piece([log.insert((1,), (), 0, v="older", w=3)])])
    assert database.select("SELECT * FROM shop_plain") == [(1, None, 3)]
    sink.close()


def test_a_restarted_sink_sweeps_what_an_earlier_one_wrote(database: Database, time: Time) -> None:
    log, sink = Log(WIDE), SqlSink(database.url, clock=time)
    write_here(
        sink, [piece([expiring(log.static((1,), 1, s="S"), 110), expiring(log.insert((1,), (1,), 1, v="a"), 110)])]
    )
    sink.close()
    assert database.select("SELECT * FROM shop_wide") == [(1, 1, "S", "a")]
    time.now = 110
    sink = SqlSink(database.url, clock=time)
    assert sink.sweep() == 2
    assert database.select("SELECT * FROM shop_wide") == []
    sink.close()


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


def test_a_truncation_takes_what_was_written_before_it(database: Database, time: Time) -> None:
    log, sink = Log(WIDE), SqlSink(database.url, clock=time)
    at = 50 * SECOND
    rows = [log.insert((1,), (n,), at + n, v=str(n)) for n in range(4)]
    write_here(sink, [piece([*rows, log.static((1,), at, s="S"), log.delete_partition((2,), at)])])
    assert write_here(sink, [piece([truncate(WIDE, "a", at + 1)])]).dead_letters == 0
    assert database.select("SELECT * FROM shop_wide") == [(1, 2, None, "2"), (1, 3, None, "3")]
    assert len(database.select("SELECT * FROM shop_wide__state")) == 2
    # Late copies and a replay of it change nothing; nor does another host that says the same.
    late = [*rows, log.static((1,), at, s="S"), log.delete_partition((2,), at), truncate(WIDE, "a", at + 1)]
    write_here(sink, [piece(late)])
    sink.close()
    sink = SqlSink(database.url, clock=time)
    write_here(sink, [piece([*late, truncate(WIDE, "b", at + 1)])])
    assert database.select("SELECT * FROM shop_wide") == [(1, 2, None, "2"), (1, 3, None, "3")]
    assert len(database.select("SELECT * FROM shop_wide__state")) == 2
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


def test_partial_rows_lose_what_is_older_than_a_truncation(database: Database, time: Time) -> None:
    log, sink = Log(PLAIN), SqlSink(database.url, clock=time)
    old, new = log.insert((1,), (), 10 * SECOND, v="old", w=1), log.update((1,), (), 30 * SECOND, w=2)
    write_here(sink, [piece([old, new])])
    write_here(sink, [piece([truncate(PLAIN, "a", 20 * SECOND)])])
    assert database.select("SELECT * FROM shop_plain") == [(1, None, 2)]
    write_here(sink, [piece([old])])
    assert database.select("SELECT * FROM shop_plain") == [(1, None, 2)]
    sink.close()
