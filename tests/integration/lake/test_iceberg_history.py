"""Histories in Iceberg tables: the contract of change logs in a directory, and what stands there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from tailrace_common.settings.sinks.iceberg import IcebergSinkSettings
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.iceberg.store import IcebergStore
from tailrace_spark.sinks.lake.history import LakeHistory
from tests.integration.lake.iceberg import ICEBERG_VERSION, NARROW, IcebergHistory
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import (
    PLAIN,
    Topic,
    batches,
    changes_of,
    deliver,
    delivered_by,
)
from tests.unit.spark.sinks.lake.history_contract import LakeHistoryContract, two_at_a_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def local(tmp_path: Path, spark: SparkSession) -> Callable[..., IcebergHistory]:
    """Makes stores: directories as sinks of their own have them."""
    numbers = count()

    def new(**more: object) -> IcebergHistory:
        path = {"path": str(tmp_path / str(next(numbers)))}
        return IcebergHistory(IcebergSinkSettings.model_validate({**path, **more}), spark)

    return new


@pytest.mark.long
class TestIcebergHistory(LakeHistoryContract):
    sink = "iceberg"
    narrow: ClassVar = NARROW

    @pytest.fixture
    def server(self) -> str:
        return f"Iceberg {ICEBERG_VERSION}, a directory"

    @pytest.fixture
    def stores(self, local: Callable[..., IcebergHistory]) -> Callable[..., IcebergHistory]:
        return local


def test_a_history_has_each_change_once(local: Callable[..., IcebergHistory]) -> None:
    """Batches that come again too, also after a step that failed."""
    stored, topic = local(), Topic()
    for batch in batches(topic):
        with closing(stored.open(dies_after=1, revives=True)) as sink:
            with pytest.raises(ServiceError, match="the process is dead"):
                sink.write(batch)
            sink.write(batch)
        assert deliver(stored, *batch).rows == 0
    again = [piece for batch in batches(Topic()) for piece in batch]
    assert changes_of(stored.records(), PLAIN).keys() == delivered_by(*again).keys()
    assert len(stored.dead_letters()) == sum(len(piece.dead_letters) for piece in again)


def test_of_two_that_write_at_a_time_one_fails_and_finds_its_batch_done(local: Callable[..., IcebergHistory]) -> None:
    two_at_a_time(local())


@pytest.mark.long
def test_what_another_staged_is_no_part_of_a_commit(local: Callable[..., IcebergHistory]) -> None:
    """Whatever a writer staged before it died: it is in no later snapshot, and expires."""
    stored, topic, log = local(), Topic(), Log(PLAIN)
    deliver(stored, topic.piece(log.insert((0,), (), 1, v="x")))
    lost = topic.piece(log.insert((1,), (), 2, v="lost"))
    with closing(stored.open(dies_after=1)) as sink, pytest.raises(ServiceError, match="the process is dead"):
        sink.write([lost])
    assert [record["columns"] for record in stored.records()] == [{"v": "x"}]
    deliver(stored, lost)
    assert sorted(record["columns"]["v"] for record in stored.records()) == ["lost", "x"]


@pytest.mark.long
def test_between_staging_and_publishing_another_writer_is_noticed(local: Callable[..., IcebergHistory]) -> None:
    """As Iceberg sees it: the staged snapshot does not follow the table's newest one any more."""
    stored, topic, log = local(), Topic(), Log(PLAIN)
    deliver(stored, topic.piece(log.insert((0,), (), 1, v="x")))
    piece = topic.piece(log.insert((1,), (), 2, v="y"))

    class Overtaken(IcebergStore):
        def _publish(self, *args: Any) -> None:
            if not overtaken:
                overtaken.append(True)
                options = "map('rewrite-all', 'true')"
                stored.sql(f"CALL {{0}}.system.rewrite_data_files(table => '{{0}}.shop.plain', options => {options})")
            super()._publish(*args)

    overtaken: list[bool] = []
    with closing(ChangeLogSink(LakeHistory(Overtaken(stored.settings, lambda: stored.spark)))) as sink:
        with pytest.raises(ServiceError, match="another writer came first, or it was compacted"):
            sink.write([piece])
        assert sink.write([piece]).rows == 1
    assert len(stored.records()) == 2


@pytest.mark.long
def test_what_is_noted_outlives_compaction_and_expiry(local: Callable[..., IcebergHistory]) -> None:
    """Both as `tailrace iceberg` does them, and whatever makes new snapshots besides."""
    stored, topic, log = local(), Topic(), Log(PLAIN)
    pieces = [topic.piece(log.insert((0,), (), number, v="x")) for number in range(3)]
    for piece in pieces:
        deliver(stored, piece)
    assert stored.store.compact("shop.plain") == {"removed": 3, "added": 1}
    assert stored.store.expire("shop.plain", 0, dry_run=True) == {"snapshots": 3, "orphans": 0}
    assert stored.store.expire("shop.plain", 0, dry_run=False) == {"snapshots": 3, "orphans": 0}
    assert stored.store.describe("shop.plain")["snapshots"] == 1
    assert deliver(stored, *pieces).rows == 0
    assert len(stored.records()) == 3


@pytest.mark.long
def test_a_table_that_would_show_rows_before_they_are_noted_is_not_written(
    local: Callable[..., IcebergHistory],
) -> None:
    stored, topic, log = local(), Topic(), Log(PLAIN)
    deliver(stored, topic.piece(log.insert((0,), (), 1, v="x")))
    stored.sql("ALTER TABLE {0}.shop.plain SET TBLPROPERTIES ('write.wap.enabled' = 'false')")
    with pytest.raises(SettingsError, match=r"set its property write\.wap\.enabled to true again"):
        deliver(stored, topic.piece(log.insert((1,), (), 1, v="x")))
    assert len(stored.records()) == 1


@pytest.mark.long
def test_types_are_arrows(local: Callable[..., IcebergHistory]) -> None:
    """What a store says of a table's columns is what they were made of, but for narrow numbers."""
    made = pa.schema(
        [("a", pa.int8()), ("s", pa.struct([("l", pa.list_(pa.int16()))])), ("t", pa.timestamp("us", "UTC"))]
    )
    store = local().store
    store.append("shop.x", None, pa.RecordBatchReader.from_batches(made, []), {"one": 1})
    opened = store.open("shop.x")
    assert opened is not None
    assert opened.schema == store.typed(made)
    assert opened.version_of("one") == 1
    assert opened.version_of("two") is None
