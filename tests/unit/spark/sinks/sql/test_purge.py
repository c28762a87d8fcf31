"""Purging of the SQL sink: its contract, how much at once, and what a truncation lets in again."""

from __future__ import annotations

from contextlib import closing

import pytest

from tailrace_schemas.position import Position
from tests.support.expiry import SECOND, Time
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.purging_contract import HORIZON, NOW, PurgingContract, at, write
from tests.unit.spark.sinks.sql.stores import InDatabase


class TestSqlPurges(PurgingContract):
    @pytest.fixture
    def purged(self, database: Database) -> InDatabase:
        return InDatabase(database, merge_horizon=HORIZON)


def test_each_sweep_forgets_some(database: Database) -> None:
    time, purged, left = Time(NOW), InDatabase(database, merge_horizon=HORIZON, purged_at_once=3), []
    with closing(purged.open(time)) as sink:
        write(sink, *(Log(PLAIN).delete((number,), (), at(number)) for number in range(7)))
        time.now = NOW + HORIZON + 100
        for _ in range(4):
            sink.sweep()
            left.append((purged.kept(), database.select("SELECT purged_to FROM tailrace_purges")[0][0]))
    assert left == [(4, at(2)), (1, at(5)), (0, at(6)), (0, at(6))]


def test_what_a_purge_forgot_does_not_hold_back_what_comes_behind_a_truncation(database: Database) -> None:
    time, purged, log = Time(100), InDatabase(database, merge_horizon=10), Log(PLAIN)
    with closing(purged.open(time)) as sink:
        write(sink, log.insert((1,), (), 40 * SECOND, v="before"), log.delete((2,), (), 41 * SECOND))
        time.now = 200
        sink.sweep()
        assert write(sink, log.insert((2,), (), 40 * SECOND, v="late")).dead_letters == 1
        truncation = truncate(PLAIN, "a", 150 * SECOND, Position(1, 5, 20))
        behind = with_source(log.insert((2,), (), 40 * SECOND, v="again"), host="a", position=Position(1, 5, 21))
        assert write(sink, truncation, behind).dead_letters == 0
    assert purged.rows(PLAIN, "id", "v") == [(2, "again")]
