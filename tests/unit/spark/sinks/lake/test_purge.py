"""Purging in current tables: deletions are forgotten a merge horizon after they were written and came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

from tailrace_schemas.change import Change, Op, Origin
from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.iceberg.store import IcebergStore
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.lake.current_table import CurrentTable
from tailrace_spark.sinks.lake.store import LakeStore, Number
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import write_here
from tests.support.expiry import SECOND, Time, expiring
from tests.support.letters import MemoryLetters
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log, source
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.merging_contract import WIDE

HORIZON = 1_000
NOW = 100_000
SWEEP = 60


class Stores(Protocol):
    def __call__(self) -> LakeStore: ...


@pytest.fixture
def time() -> Time:
    return Time(NOW)


@pytest.fixture(params=["delta", "iceberg"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], LakeStore]:
    if request.param == "delta":
        return lambda: DeltaStore(DeltaSinkSettings(path=str(tmp_path), mode="current"))
    return lambda: IcebergStore(IcebergSinkSettings(path=str(tmp_path), mode="current"))


@pytest.fixture
def letters() -> MemoryLetters:
    return MemoryLetters()


@pytest.fixture
def sink(stores: Stores, time: Time, letters: MemoryLetters) -> Iterator[LakeCurrent]:
    opened = opened_at(stores, time, letters)
    yield opened
    opened.close()


def opened_at(stores: Stores, time: Time, letters: Letters = LOGGED) -> LakeCurrent:
    return LakeCurrent(stores(), 2, merge_horizon=HORIZON, sweep_seconds=SWEEP, clock=time, letters=letters)


def at(seconds: int) -> int:
    """A write time, in microseconds, so many seconds from NOW."""
    return (NOW + seconds) * SECOND


def states(stores: Stores, name: str) -> int:
    table = stores().open(f"shop.{name}-state")
    assert table is not None
    return len(table.read(["key"], Number("bucket").differs(-1)))


def visible(stores: Stores, name: str, *columns: str) -> Sequence[tuple[object, ...]]:
    table = stores().open(f"shop.{name}")
    assert table is not None
    rows = table.read(list(columns), Number("__bucket").differs(-1)).to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in rows)


def changes() -> list[Change]:
    plain, wide = Log(PLAIN), Log(WIDE)
    return [
        plain.insert((1,), (), at(0), v="a"), plain.update((1,), (), at(1), w=None), plain.delete((2,), (), at(0)),
        plain.delete_partition((3,), at(2)), expiring(plain.update((4,), (), at(0), v="x"), NOW + 5),
        wide.insert((1,), (1,), at(0), v="a"), wide.static((1,), at(0), s=None),
        wide.delete_range((1,), (5,), (6,), at(0)),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.promise("lake.purge")
def test_what_only_deletes_is_forgotten_and_visible_rows_stay(stores: Stores, time: Time, sink: LakeCurrent) -> None:
    write_here(sink, [piece(changes())])
    time.now += SWEEP
    sink.sweep()
    shown = visible(stores, "plain", "id", "v", "w"), visible(stores, "wide", "id", "c", "v")
    assert shown == ([(1, "a", None)], [(1, 1, "a")])
    assert (states(stores, "plain"), states(stores, "wide")) == (4, 3)
    time.now = NOW + HORIZON - 1
    sink.sweep()
    assert (states(stores, "plain"), states(stores, "wide")) == (4, 3)
    time.now = NOW + HORIZON + SWEEP + 1
    sink.sweep()
    assert (visible(stores, "plain", "id", "v", "w"), visible(stores, "wide", "id", "c", "v")) == shown
    assert (states(stores, "plain"), states(stores, "wide")) == (1, 1)
    purged = [CurrentTable.open(stores(), f"shop.{name}") for name in ("plain", "wide")]
    assert [table and table.entry.purged_to for table in purged] == [at(2), at(0)]


@pytest.mark.slow
def test_a_purge_is_noted_by_both_tables(stores: Stores, time: Time, sink: LakeCurrent) -> None:
    """So the next write need not compare the visible table with the state."""
    write_here(sink, [piece(changes())])
    time.now = NOW + HORIZON + SWEEP
    sink.sweep()
    versions = [stores().open(name) for name in ("shop.plain-state", "shop.plain")]
    batches = {table and table.version_of("tailrace/batch") for table in versions}
    assert len(batches) == 1
    write_here(sink, [piece([Log(PLAIN).update((1,), (), at(9), w=7)])])
    assert visible(stores, "plain", "id", "v", "w") == [(1, "a", 7)]


@pytest.mark.slow
@pytest.mark.promise("lake.purge")
def test_a_purge_that_dies_between_its_commits_heals(stores: Stores, time: Time) -> None:
    class Dying:
        def __init__(self, store: LakeStore) -> None:
            self._store = store
            self._commits = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def commit_staged(self, *args: Any) -> None:
            self._commits += 1
            if self._commits == 2:
                raise ServiceError("killed")
            self._store.commit_staged(*args)

    write_here(opened_at(stores, time), [piece(changes())])
    time.now = NOW + SWEEP
    opened_at(stores, time).sweep()
    time.now = NOW + HORIZON + SWEEP
    dying = opened_at(lambda: cast("LakeStore", Dying(stores())), time)
    with pytest.raises(ServiceError, match="killed"):
        dying.sweep()
    sink = opened_at(stores, time)
    sink.sweep()
    assert (states(stores, "plain"), states(stores, "wide")) == (1, 1)
    assert visible(stores, "plain", "id", "v", "w") == [(1, "a", None)]
    write_here(sink, [piece([Log(PLAIN).update((1,), (), at(9), w=7)])])
    assert visible(stores, "plain", "id", "v", "w") == [(1, "a", 7)]


@pytest.mark.slow
def test_what_is_as_old_as_what_was_forgotten_goes_to_dead_letters(
    stores: Stores, time: Time, sink: LakeCurrent, letters: MemoryLetters
) -> None:
    log, other = Log(PLAIN), Log(WIDE)
    write_here(sink, [piece([log.delete((2,), (), at(5)), log.insert((1,), (), at(6), v="a")])])
    time.now = NOW + HORIZON + SWEEP
    sink.sweep()
    late, newer = log.insert((2,), (), at(5), v="again"), log.insert((3,), (), at(6), v="b")
    read = replace(log.insert((4,), (), at(1), v="read"), op=Op.READ)
    snapshot = replace(log.insert((5,), (), at(1), v="s"), source=replace(source(), origin=Origin.SNAPSHOT))
    batch = [piece([late, newer, read, snapshot, other.insert((1,), (1,), at(0), v="other")])]
    assert write_here(sink, batch) == Summary(4, 4, 1)
    assert [row[0] for row in visible(stores, "plain", "id")] == [1, 3, 4, 5]
    [letter] = letters.all
    assert str(at(5)) in letter.reason
    assert "merge_horizon" in letter.reason
    again = opened_at(stores, time)  # in another process too
    assert write_here(again, [piece([log.delete((1,), (), at(4))])]) == Summary(0, 0, 1)


@pytest.mark.slow
@pytest.mark.promise("lake.purge")
def test_of_a_row_the_older_tombstone_goes_and_the_newer_one_stays(
    stores: Stores, time: Time, sink: LakeCurrent
) -> None:
    """So a write between the two is merged, and one that the newer tombstone covers shows nothing."""
    log = Log(PLAIN)
    write_here(sink, [piece([log.insert((1,), (), at(0), v=None), log.update((1,), (), at(5), w=None)])])
    time.now = NOW + HORIZON + 2
    sink.sweep()
    purged = CurrentTable.open(stores(), "shop.plain")
    assert purged is not None
    assert purged.entry.purged_to == at(0)
    between = [log.update((1,), (), at(4), v="x"), log.update((1,), (), at(4), w=7)]
    assert write_here(sink, [piece(between)]) == Summary(2, 1)
    assert visible(stores, "plain", "id", "v", "w") == [(1, "x", None)]


@pytest.mark.slow
@pytest.mark.promise("lake.purge")
def test_what_came_late_is_kept_as_long(stores: Stores, time: Time, sink: LakeCurrent) -> None:
    log = Log(PLAIN)
    write_here(sink, [piece([log.delete((2,), (), at(-50_000)), log.delete_partition((3,), at(-50_000))])])
    time.now = NOW + HORIZON - 1
    sink.sweep()
    assert states(stores, "plain") == 2
    assert write_here(sink, [piece([log.insert((2,), (), at(-50_001), v="older")])]) == Summary(1, 0)
    time.now = NOW + HORIZON + SWEEP
    sink.sweep()
    assert states(stores, "plain") == 0


@pytest.mark.slow
def test_the_next_sweep_goes_on_where_a_commit_was_full(stores: Stores, time: Time) -> None:
    sink = LakeCurrent(stores(), 2, merge_horizon=100 * SWEEP * 10, purge_limit=3, sweep_seconds=SWEEP, clock=time)
    write_here(sink, [piece([Log(PLAIN).delete((number,), (), at(number)) for number in range(7)])])
    time.now = NOW + 100 * SWEEP * 10 + SWEEP
    left = []
    for _ in range(3):
        sink.sweep()
        left.append(states(stores, "plain"))
        time.now += SWEEP
    assert left == [4, 1, 0]


@pytest.mark.slow
def test_without_a_horizon_nothing_is_forgotten(stores: Stores, time: Time) -> None:
    sink = LakeCurrent(stores(), 2, clock=time)
    write_here(sink, [piece([Log(PLAIN).delete((1,), (), at(0))])])
    time.now = NOW + 10**9
    sink.sweep()
    assert states(stores, "plain") == 1
