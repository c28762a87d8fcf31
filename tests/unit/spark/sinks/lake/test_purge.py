"""Purging in current tables of each lake: its contract, a death between the two commits, how much goes at once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace_schemas.errors import ServiceError
from tests.support.expiry import Time
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.lake.followed import KINDS, made_at
from tests.unit.spark.sinks.lake.stores import FollowedLake
from tests.unit.spark.sinks.purging_contract import HORIZON, NOW, SWEEP, PurgingContract, at, changes, write

pytestmark = pytest.mark.slow


@pytest.fixture(params=KINDS)
def purged(request: pytest.FixtureRequest, tmp_path: Path) -> FollowedLake:
    return made_at(request.param, tmp_path, merge_horizon=HORIZON, sweep_seconds=SWEEP)


@pytest.fixture
def time() -> Time:
    return Time(NOW)


@pytest.mark.promise("lake.purge")
class TestLakesPurge(PurgingContract):
    """Delta's and Iceberg's."""


def test_a_purge_is_noted_by_both_tables(purged: FollowedLake, time: Time) -> None:
    """So the next write need not compare the visible table with the state."""
    with closing(purged.open(time)) as sink:
        write(sink, *changes())
        time.now = NOW + HORIZON + SWEEP
        sink.sweep()
        tables = [purged.store.open(name) for name in ("shop.plain-state", "shop.plain")]
        assert len({table and table.version_of("tailrace/batch") for table in tables}) == 1
        write(sink, Log(PLAIN).update((1,), (), at(9), w=7))
    assert purged.rows(PLAIN, "id", "v", "w") == [(1, "a", 7)]


@pytest.mark.promise("lake.purge")
def test_a_purge_that_dies_between_its_commits_heals(purged: FollowedLake, time: Time) -> None:
    with closing(purged.open(time)) as sink:
        write(sink, *changes())
        time.now = NOW + SWEEP
        sink.sweep()
    time.now = NOW + HORIZON + SWEEP
    with closing(purged.open(time, dies_after=2)) as dying, pytest.raises(ServiceError, match="the process is dead"):
        dying.sweep()
    with closing(purged.open(time)) as sink:
        sink.sweep()
        assert purged.kept() == 2
        assert purged.rows(PLAIN, "id", "v", "w") == [(1, "a", None)]
        write(sink, Log(PLAIN).update((1,), (), at(9), w=7))
    assert purged.rows(PLAIN, "id", "v", "w") == [(1, "a", 7)]


@pytest.mark.parametrize(
    ("options", "left"),
    [({"merge_horizon": 100 * HORIZON, "purge_limit": 3}, [4, 1, 0]), ({}, [7, 7, 7])],
    ids=["where a commit was full the next one goes on", "without a horizon"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_how_much_is_forgotten_at_once(
    kind: str, tmp_path: Path, time: Time, options: dict[str, Any], left: list[int]
) -> None:
    purged, kept = made_at(kind, tmp_path, sweep_seconds=SWEEP, **options), list[int]()
    with closing(purged.open(time)) as sink:
        write(sink, *(Log(PLAIN).delete((number,), (), at(number)) for number in range(7)))
        time.now = NOW + 100 * HORIZON + SWEEP
        for _ in range(3):
            sink.sweep()
            kept.append(purged.kept())
            time.now += SWEEP
    assert kept == left
