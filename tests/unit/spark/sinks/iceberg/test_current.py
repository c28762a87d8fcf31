"""Iceberg tables that follow: the contract of merging sinks in a directory, crashes, two writers, columns."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.iceberg.store import IcebergStore
from tailrace_spark.sinks.lake.current import LakeCurrent
from tailrace_spark.sinks.protocol import write_here
from tests.held import package
from tests.support.shop import PLAIN, WIDER
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import is_cut_off, piece
from tests.unit.spark.sinks.iceberg.stores import FollowedIceberg, IcebergCurrentInTasks
from tests.unit.spark.sinks.lake.current_contract import LakeCurrentContract
from tests.unit.spark.sinks.lake.row_filter_contract import LakeRowFilterContract
from tests.unit.spark.sinks.lake.stores import overtaken
from tests.unit.spark.sinks.merging_contract import selected, write
from tests.unit.tables import table

Stores = Callable[..., FollowedIceberg]


def made_in(root: Path, kind: type[FollowedIceberg] = FollowedIceberg) -> Stores:
    """Makes stores: directories as sinks of their own have them."""
    numbers = count()

    def new(**more: object) -> FollowedIceberg:
        path = {"path": str(root / str(next(numbers))), "mode": "current", "buckets": 2}
        return kind(IcebergSinkSettings.model_validate({**path, **more}))

    return new


@pytest.fixture
def another(tmp_path: Path) -> Stores:
    return made_in(tmp_path)


@pytest.mark.promise("iceberg.current")
@pytest.mark.long
@pytest.mark.timeout(1800)
class TestIcebergCurrent(LakeCurrentContract, LakeRowFilterContract):
    sink = "iceberg"
    server_name = f"{package('pyiceberg')}, a directory"


@pytest.mark.promise("iceberg.current", "stream.execution")
@pytest.mark.long
class TestIcebergCurrentInTasks(TestIcebergCurrent):
    sink = "iceberg, in tasks"

    @pytest.fixture
    def another(self, tmp_path: Path) -> Stores:
        return made_in(tmp_path, IcebergCurrentInTasks)


@pytest.mark.promise("iceberg.current")
@pytest.mark.slow
@pytest.mark.parametrize("step", [pytest.param(step, marks=[pytest.mark.long] * (step != 7)) for step in range(11)])
def test_a_crash_at_any_step_heals(another: Stores, step: int) -> None:
    """Also where the batch does not come again, and another one does: of what is in the state."""
    log, wider = Log(PLAIN), Log(WIDER)
    first = [log.insert((number,), (), 1, v=f"{number}") for number in range(4)]
    second = [wider.update((0,), (), 2, x="new"), log.delete((1,), (), 2), log.insert((9,), (), 2, v="more")]
    third = [log.insert((8,), (), 3, v="other")]
    for again in (True, False):
        followed = another(buckets=1)
        write(followed, *first)
        died = is_cut_off(followed.open(dies_after=step), piece(second))
        assert died == (step < 10)  # three commits for a column, and one of each table, before and behind each
        widened = again or step > 0  # the state is written first
        taken = again or step > 6
        if again:
            write(followed, *second)
        write(followed, *third)
        shown = ("id", "v", "x") if widened else ("id", "v")
        changes = [*first, *(second if taken else ()), *third]
        assert followed.rows(PLAIN, *shown) == selected(WIDER if widened else PLAIN, changes, *shown)


@pytest.mark.slow
@pytest.mark.promise("iceberg.two-writers")
def test_of_two_that_make_a_table_anew_one_fails(another: Stores) -> None:
    followed, log = another(), Log(PLAIN)
    write(followed, log.insert((1,), (), 1, v="a", w=1))
    gone = table({"id": "int"}, regular={"w": "int"}, dropped={"v": ("text", 20)}, keyspace="shop", name="plain")

    store = overtaken(followed.opened(), lambda: write(followed, log.update((1,), (), 40, w=7)), "rewrite")
    sink = LakeCurrent(store, 2, clock=lambda: 0)
    mine = [piece([Log(gone).update((1,), (), 30, w=3)])]
    with pytest.raises(ServiceError, match="another writer came first"):
        write_here(sink, mine)
    write_here(sink, mine)
    write(followed, log.insert((2,), (), 50, w=8))
    assert followed.rows(PLAIN, "id", "w") == [(1, 7), (2, 8)]
    assert followed.columns(PLAIN) == ["id", "w"]


@pytest.mark.slow
@pytest.mark.promise("iceberg.current")
def test_only_files_that_have_a_row_that_changes_are_written_again(another: Stores) -> None:
    followed, log = another(buckets=1), Log(PLAIN)
    for number in range(3):
        write(followed, log.insert((number,), (), 1, v="a"))
    before = {task.file.file_path for task in followed.table("shop.plain").scan().plan_files()}
    write(followed, log.update((1,), (), 2, v="b"))
    after = {task.file.file_path for task in followed.table("shop.plain").scan().plan_files()}
    assert (len(before), len(after), len(before & after)) == (3, 3, 2)
    assert followed.rows(PLAIN, "id", "v") == [(0, "a"), (1, "b"), (2, "a")]


@pytest.mark.promise("iceberg.current")
@pytest.mark.slow
def test_manifests_of_merges_do_not_pile_up(another: Stores) -> None:
    """pyiceberg merges manifests where rows are appended, so a table of updates alone would get more with each."""
    followed, log = another(buckets=1), Log(PLAIN)
    write(followed, log.insert((0,), (), 1, v="a"), log.insert((1,), (), 1, v="a"))
    sink = LakeCurrent(IcebergStore(followed.settings, manifests=4), 1, clock=lambda: 0)
    for number in range(8):
        write_here(sink, [piece([log.update((0,), (), 2 + number, v=str(number))])])
        found = followed.table("shop.plain")
        newest = found.current_snapshot()
        assert newest is not None
        assert len(newest.manifests(found.io)) < 8
    assert followed.rows(PLAIN, "id", "v") == [(0, "7"), (1, "a")]
