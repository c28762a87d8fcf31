"""Iceberg tables that follow: the contract of merging sinks in a directory, crashes, two writers, columns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tailrace_common.settings.sinks.iceberg import IcebergSinkSettings
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.iceberg.store import IcebergStore
from tailrace_spark.sinks.lake.current import LakeCurrent
from tests.integration.lake.iceberg import ICEBERG_VERSION, FollowedIceberg
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.lake.current_contract import WIDER, LakeCurrentContract
from tests.unit.spark.sinks.merging_contract import selected, write
from tests.unit.spark.sinks.sql.test_sink import PLAIN
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
class TestIcebergCurrent(LakeCurrentContract):
    sink = "iceberg"

    @pytest.fixture
    def server(self) -> str:
        return f"Iceberg {ICEBERG_VERSION}, a directory"

    @pytest.fixture
    def followed(self, another: Stores) -> FollowedIceberg:
        return another()


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
