"""Purging: deletions are forgotten a merge horizon after they were written and came, and what is older is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace_schemas.change import Op, Origin
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.support.expiry import SECOND, Time, expiring
from tests.support.letters import MemoryLetters
from tests.support.shop import PLAIN
from tests.support.shop import WIDE as WITH_PLAINS_ID
from tests.unit.spark.cassandra import Log, source
from tests.unit.spark.sinks.contract import Database, piece

WIDE = replace(WITH_PLAINS_ID, id=UUID(int=9))
HORIZON = 1_000
NOW = 100_000


@pytest.fixture
def time() -> Time:
    return Time(NOW)


@pytest.fixture
def letters() -> MemoryLetters:
    return MemoryLetters()


@pytest.fixture
def sink(database: Database, time: Time, letters: MemoryLetters) -> Iterator[SqlSink]:
    opened = SqlSink(database.url, merge_horizon=HORIZON, clock=time, letters=letters)
    yield opened
    opened.close()


def at(seconds: int) -> int:
    """A write time, in microseconds, so many seconds from NOW."""
    return (NOW + seconds) * SECOND


def states(database: Database, table: str) -> int:
    [(count,)] = database.select(f"SELECT count(*) FROM shop_{table}__state")
    return int(count)


def test_what_only_deletes_is_forgotten_and_what_is_shown_stays(database: Database, time: Time, sink: SqlSink) -> None:
    plain, wide = Log(PLAIN), Log(WIDE)
    write_here(sink, [piece([
        plain.insert((1,), (), at(0), v="a"), plain.update((1,), (), at(1), w=None), plain.delete((2,), (), at(0)),
        plain.delete_partition((3,), at(2)), expiring(plain.update((4,), (), at(0), v="x"), NOW + 5),
        wide.insert((1,), (1,), at(0), v="a"), wide.static((1,), at(0), s=None),
        wide.delete_range((1,), (5,), (6,), at(0)),
    ])])  # fmt: skip
    time.now += 10
    sink.sweep()
    shown = database.select("SELECT * FROM shop_plain"), database.select("SELECT * FROM shop_wide")
    assert shown == ([(1, "a", None)], [(1, 1, None, "a")])
    before = states(database, "plain"), states(database, "wide")
    time.now = NOW + HORIZON - 1
    sink.sweep()
    assert (states(database, "plain"), states(database, "wide")) == before == (4, 3)
    time.now = NOW + HORIZON + 10
    sink.sweep()
    assert (database.select("SELECT * FROM shop_plain"), database.select("SELECT * FROM shop_wide")) == shown
    assert (states(database, "plain"), states(database, "wide")) == (1, 1)
    assert database.select("SELECT purged_to FROM tailrace_purges") == [(at(0),), (at(2),)]
    kept = database.everything()
    sink.sweep()
    assert database.everything() == kept


def test_of_a_row_the_older_tombstone_goes_and_the_newer_one_stays(
    database: Database, time: Time, sink: SqlSink
) -> None:
    """So a write between the two is merged, and one that the newer tombstone covers shows nothing."""
    log = Log(PLAIN)
    write_here(sink, [piece([log.insert((1,), (), at(0), v=None), log.update((1,), (), at(5), w=None)])])
    time.now = NOW + HORIZON + 2
    sink.sweep()
    assert database.select("SELECT purged_to FROM tailrace_purges") == [(at(0),)]
    between = [log.update((1,), (), at(4), v="x"), log.update((1,), (), at(4), w=7)]
    assert write_here(sink, [piece(between)]) == Summary(2, 1)
    assert database.select("SELECT * FROM shop_plain") == [(1, "x", None)]


def test_what_came_late_is_kept_as_long(database: Database, time: Time, sink: SqlSink) -> None:
    log = Log(PLAIN)
    write_here(sink, [piece([log.delete((2,), (), at(-50_000)), log.delete_partition((3,), at(-50_000))])])
    time.now = NOW + HORIZON - 1
    sink.sweep()
    assert states(database, "plain") == 2
    assert write_here(sink, [piece([log.insert((2,), (), at(-50_001), v="older")])]) == Summary(1, 0)
    time.now = NOW + HORIZON
    sink.sweep()
    assert states(database, "plain") == 0


def test_what_is_as_old_as_what_was_forgotten_goes_to_dead_letters(
    database: Database, time: Time, sink: SqlSink, letters: MemoryLetters
) -> None:
    log, other = Log(PLAIN), Log(WIDE)
    write_here(sink, [piece([log.delete((2,), (), at(5)), log.insert((1,), (), at(6), v="a")])])
    time.now = NOW + HORIZON + 5
    sink.sweep()
    late, newer = log.insert((2,), (), at(5), v="again"), log.insert((3,), (), at(6), v="b")
    read = replace(log.insert((4,), (), at(1), v="read"), op=Op.READ)
    snapshot = replace(log.insert((5,), (), at(1), v="s"), source=replace(source(), origin=Origin.SNAPSHOT))
    batch = [piece([late, newer, read, snapshot, other.insert((1,), (1,), at(0), v="other")])]
    assert write_here(sink, batch) == Summary(4, 4, 1)
    assert database.select("SELECT id FROM shop_plain") == [(1,), (3,), (4,), (5,)]
    [letter] = letters.all
    assert str(at(5)) in letter.reason
    assert "merge_horizon" in letter.reason
    again = SqlSink(database.url, merge_horizon=HORIZON, clock=time)  # of another process it holds as well
    assert write_here(again, [piece([log.delete((1,), (), at(4))])]) == Summary(0, 0, 1)
    again.close()


def test_each_sweep_forgets_some(database: Database, time: Time) -> None:
    log, sink = Log(PLAIN), SqlSink(database.url, merge_horizon=HORIZON, clock=time, purged_at_once=3)
    write_here(sink, [piece([log.delete((number,), (), at(number)) for number in range(7)])])
    time.now = NOW + HORIZON + 100
    left = []
    for _ in range(4):
        sink.sweep()
        left.append((states(database, "plain"), database.select("SELECT purged_to FROM tailrace_purges")[0][0]))
    assert left == [(4, at(2)), (1, at(5)), (0, at(6)), (0, at(6))]
    sink.close()
