"""Iceberg tables that follow: the contract of merging sinks in a directory, crashes, two writers, columns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tailrace_common.settings_sink_iceberg import IcebergSinkSettings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.iceberg_store import IcebergStore
from tailrace_spark.sinks.lake_current import LakeCurrent
from tests.integration.lake.iceberg import ICEBERG_VERSION, FollowedIceberg, IcebergHistory
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import Topic, deliver
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.merging_contract import WIDE, MergingContract, selected, write
from tests.unit.spark.sinks.test_delta_current import WIDER, batches
from tests.unit.spark.sinks.test_sql import PLAIN
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Stores = Callable[..., FollowedIceberg]


@pytest.fixture
def another(tmp_path: Path, spark: SparkSession) -> Stores:
    """Makes stores: directories as sinks of their own have them."""
    numbers = count()

    def new(**more: object) -> FollowedIceberg:
        path = {"path": str(tmp_path / str(next(numbers))), "mode": "current", "buckets": 2}
        return FollowedIceberg(IcebergSinkSettings.model_validate({**path, **more}), spark)

    return new


@pytest.mark.long
class TestIcebergCurrent(MergingContract):
    sink = "iceberg"

    @pytest.fixture
    def server(self) -> str:
        return f"Iceberg {ICEBERG_VERSION}, a directory"

    @pytest.fixture
    def followed(self, another: Stores) -> FollowedIceberg:
        return another()


def require_select(followed: FollowedIceberg, changes: list[Any], why: str = "") -> None:
    plain = [change for change in changes if change.table.name == "plain"]
    wide = [change for change in changes if change.table.name == "wide"]
    shown = [name for name in ("id", "v", "w", "x") if name in followed.columns(PLAIN)]
    assert followed.rows(PLAIN, *shown) == selected(WIDER, plain, *shown), why
    assert followed.rows(WIDE, "id", "c", "s", "v") == selected(WIDE, wide, "id", "c", "s", "v"), why


@pytest.mark.long
def test_tables_follow_the_source(another: Stores) -> None:
    """Batches that come again change nothing; columns come, rows go."""
    followed = another()
    first, second, _ = batches()
    write(followed, *first)
    write(followed, *second)
    require_select(followed, [*first, *second])
    before = followed.everything()
    assert write(followed, *second).rows == 0
    assert followed.everything() == before


@pytest.mark.long
@pytest.mark.parametrize("step", range(9))
def test_a_crash_at_any_step_heals(another: Stores, step: int) -> None:
    """Also where the batch does not come again, and another one does: of what is in the state."""
    log, wider = Log(PLAIN), Log(WIDER)
    first = [log.insert((number,), (), 1, v=f"{number}") for number in range(4)]
    second = [wider.update((0,), (), 2, x="new"), log.delete((1,), (), 2), log.insert((9,), (), 2, v="more")]
    third = [log.insert((8,), (), 3, v="other")]
    for again in (True, False):
        followed = another(buckets=1)
        write(followed, *first)
        died = False
        with closing(followed.open(dies_after=step)) as sink:
            try:
                sink.write([piece(second)])
            except ServiceError:
                died = True
        assert died == (step < 8)  # a column is added in two steps, and both tables are written in three
        taken = again or step > 1  # the state is written first
        if again:
            write(followed, *second)
        write(followed, *third)
        shown = ("id", "v", "x") if taken else ("id", "v")
        changes = [*first, *(second if taken else ()), *third]
        assert followed.rows(PLAIN, *shown) == selected(WIDER if taken else PLAIN, changes, *shown)


def test_what_a_crash_left_unshown_is_shown_with_the_next_batch(another: Stores) -> None:
    """The state is committed, and the process dies before the table that users read is."""
    followed, log = another(), Log(PLAIN)
    write(followed, log.insert((1,), (), 1, v="a"))
    with closing(followed.open(dies_after=4)) as sink, pytest.raises(ServiceError, match="the process is dead"):
        sink.write([piece([log.update((1,), (), 2, v="b"), log.insert((2,), (), 2, v="c")])])
    assert followed.rows(PLAIN, "id", "v") == [(1, "a")]
    write(followed, log.insert((3,), (), 3, v="d"))
    assert followed.rows(PLAIN, "id", "v") == [(1, "b"), (2, "c"), (3, "d")]


@pytest.mark.long
def test_of_two_that_write_at_a_time_one_fails_and_is_written_again(another: Stores) -> None:
    """Neither's changes are lost: each knows only by its commit that the other was there."""
    followed, log = another(), Log(PLAIN)
    write(followed, log.insert((1,), (), 1, v="a"))
    other = log.update((1,), (), 3, v="other")

    class Overtaken(IcebergStore):
        def merge(self, *args: Any, **named: Any) -> None:
            if not overtaken:
                overtaken.append(True)
                write(followed, other)
            super().merge(*args, **named)

    overtaken: list[bool] = []
    sink = LakeCurrent(Overtaken(followed.settings, lambda: followed.spark), 2, clock=lambda: 0)
    mine = [piece([log.update((1,), (), 2, w=5)])]
    with pytest.raises(ServiceError, match="another writer came first"):
        sink.write(mine)
    sink.write(mine)
    assert followed.rows(PLAIN, "id", "v", "w") == [(1, "other", 5)]


@pytest.mark.long
def test_of_two_that_make_a_table_anew_the_later_one_is_told(another: Stores) -> None:
    """It is behind its commit then; what it notes is what it shows, so the next batch mends it."""
    followed, log = another(), Log(PLAIN)
    write(followed, log.insert((1,), (), 1, v="a", w=1))
    gone = table({"id": "int"}, regular={"w": "int"}, dropped={"v": ("text", 20)}, keyspace="shop", name="plain")

    class Overtaken(IcebergStore):
        def rewrite(self, *args: Any, **named: Any) -> None:
            if not overtaken:
                overtaken.append(True)
                write(followed, log.update((1,), (), 40, w=7))
            super().rewrite(*args, **named)

    overtaken: list[bool] = []
    sink = LakeCurrent(Overtaken(followed.settings, lambda: followed.spark), 2, clock=lambda: 0)
    mine = [piece([Log(gone).update((1,), (), 30, w=3)])]
    with pytest.raises(ServiceError, match="another writer came first"):
        sink.write(mine)
    sink.write(mine)
    write(followed, log.insert((2,), (), 50, w=8))
    assert followed.rows(PLAIN, "id", "w") == [(1, 7), (2, 8)]


@pytest.mark.long
@pytest.mark.parametrize("way", ["copy-on-write", "merge-on-read"])
def test_merging_what_changes_no_row_is_noted_all_the_same(another: Stores, way: str) -> None:
    """Rows that are to go and are not there; also where a table's owner chose the other way of merging."""
    followed, log = another(), Log(PLAIN)
    write(followed, log.insert((1,), (), 1, v="a"))
    for name in followed.store.names():
        followed.sql(
            f"ALTER TABLE {{0}}.shop.`{name.partition('.')[2]}` SET TBLPROPERTIES ('write.merge.mode' = '{way}')"
        )
    table = followed.store.open("shop.plain")
    assert table is not None
    schema = pa.schema([*table.schema, pa.field("gone", pa.bool_())])
    away = {"__key": b"none", "__clustering": b"", "__bucket": 0, "gone": True}
    named_by = ("__bucket", "__key", "__clustering")
    followed.store.merge("shop.plain", table, pa.Table.from_pylist([away], schema=schema), named_by, {"x": 7})
    again = followed.store.open("shop.plain")
    assert again is not None
    assert again.version_of("x") == 7
    write(followed, log.update((1,), (), 2, v="b"), log.insert((2,), (), 2, v="c"))
    write(followed, log.delete((1,), (), 3))
    assert followed.rows(PLAIN, "id", "v") == [(2, "c")]


@pytest.mark.long
def test_compacting_in_between_changes_nothing(another: Stores) -> None:
    followed = another()
    done: list[Any] = []
    for batch in batches():
        write(followed, *batch)
        done += batch
        for name in followed.store.names():
            followed.store.compact(name)
            followed.store.expire(name, 0, dry_run=False)
    require_select(followed, done)


@pytest.mark.long
def test_a_history_is_not_written_over_nor_the_other_way_round(another: Stores) -> None:
    change = Log(PLAIN).insert((1,), (), 1, v="a")
    followed = another()
    deliver(IcebergHistory(followed.settings, followed.spark), Topic().piece(change))
    with pytest.raises(SettingsError, match=r"shop\.plain in .* is a table of another kind"):
        write(followed, change)
    other = another()
    write(other, change)
    with pytest.raises(SettingsError, match=r"shop\.plain is a table of another kind"):
        deliver(IcebergHistory(other.settings, other.spark), Topic().piece(change))
