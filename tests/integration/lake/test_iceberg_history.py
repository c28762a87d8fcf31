"""Histories in Iceberg tables: the contract of change logs in a directory, and what stands there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pytest

from tailrace_common.settings_sink_iceberg import IcebergSinkSettings
from tailrace_schemas.cql.types import UserTypeDefinition, parse_type
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.change_log import ChangeLogSink
from tailrace_spark.sinks.iceberg_store import IcebergStore
from tailrace_spark.sinks.lake_history import LakeHistory
from tailrace_spark.sinks.protocol import Piece, Summary
from tests.integration.lake.iceberg import ICEBERG_VERSION, IcebergHistory
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import (
    PLAIN,
    WIDE,
    ChangeLogContract,
    Topic,
    batches,
    changes_of,
    deliver,
    delivered_by,
)
from tests.unit.spark.sinks.test_delta_history import LARGEST
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400_000_000


@pytest.fixture
def local(tmp_path: Path, spark: SparkSession) -> Callable[..., IcebergHistory]:
    """Makes stores: directories as sinks of their own have them."""
    numbers = count()

    def new(**more: object) -> IcebergHistory:
        path = {"path": str(tmp_path / str(next(numbers)))}
        return IcebergHistory(IcebergSinkSettings.model_validate({**path, **more}), spark)

    return new


@pytest.mark.long
class TestIcebergHistory(ChangeLogContract):
    sink = "iceberg"

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
    """First where the table is not there yet, then where it is."""
    stored, topic, log = local(), Topic(), Log(PLAIN)
    for number in range(2):
        piece = topic.piece(log.insert((0,), (), number, v="x"))

        def overtaken(piece: Piece = piece) -> Iterator[Piece]:
            yield piece
            deliver(stored, piece)

        with closing(stored.open()) as sink:
            with pytest.raises(ServiceError, match="another writer came first"):
                sink.write(overtaken())
            assert sink.write([piece]).rows == 0
    assert [record["offset"] for record in stored.records()] == [0, 1]


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
def test_days_are_partitions(local: Callable[..., IcebergHistory]) -> None:
    """Those of the write times, UTC."""
    stored, topic, log = local(), Topic(), Log(PLAIN)
    times = [0, DAY - 1, DAY, -1, 2**63 - 1, -(2**63)]
    deliver(stored, topic.piece(*(log.insert((0,), (), at, v="x") for at in times)))
    found = {str(row[0]["day"]) for row in stored.sql("SELECT partition FROM {0}.shop.plain.partitions")}
    assert found == {"0001-01-01", "1969-12-31", "1970-01-01", "1970-01-02", "9999-12-31"}


@pytest.mark.long
def test_columns_that_come_later_are_null_before_and_dropped_ones_stay(local: Callable[..., IcebergHistory]) -> None:
    stored, topic = local(), Topic()
    other = table({"id": "int"}, regular={"a": "int", "w": "int"}, keyspace="shop", name="plain")
    deliver(stored, topic.piece(Log(PLAIN).insert((1,), (), 1, v="old")))
    deliver(stored, topic.piece(Log(WIDE).insert((1,), (), 2, v="new", x=1.5)))
    deliver(stored, topic.piece(Log(other).insert((1,), (), 3, a=7, w=8)))
    rows = stored.rows("shop.plain")
    assert [[row[name] for name in ("v", "w", "x", "a")] for row in rows["columns"].to_pylist()] == [
        ["old", None, None, None], ["new", None, 1.5, None], [None, 8, None, 7],
    ]  # fmt: skip


@pytest.mark.long
def test_fields_that_a_user_type_gets_are_added(local: Callable[..., IcebergHistory]) -> None:
    stored, topic = local(), Topic()
    grows = [("street",), ("street", "zip")]
    of = []
    for fields in grows:
        types = {"addr": UserTypeDefinition("addr", fields, ("text", "int")[: len(fields)])}
        column = replace(PLAIN.regular[0], type=parse_type("frozen<list<frozen<addr>>>", types))
        of.append(replace(PLAIN, regular=(column,)))
    deliver(stored, topic.piece(Log(of[0]).insert((1,), (), 1, v=[{"street": "S"}])))
    deliver(stored, topic.piece(Log(of[1]).insert((1,), (), 2, v=[{"street": "T", "zip": 5}])))
    assert [row["v"] for row in stored.rows("shop.plain")["columns"].to_pylist()] == [
        [{"street": "S", "zip": None}], [{"street": "T", "zip": 5}],
    ]  # fmt: skip


@pytest.mark.long
def test_a_column_of_another_type_has_a_table_of_its_own(local: Callable[..., IcebergHistory]) -> None:
    other = table({"id": "int"}, regular={"v": "int"}, keyspace="shop", name="plain", table_id=UUID(int=8))
    stored, topic = local(), Topic()
    pieces = [
        topic.piece(Log(PLAIN).insert((1,), (), 1, v="5")),
        topic.piece(Log(other).insert((1,), (), 2, v=5)),
        topic.piece(Log(PLAIN).insert((1,), (), 3, v="6")),
    ]
    deliver(stored, *pieces)
    assert deliver(stored, *pieces).rows == 0
    names = ("shop.plain", "shop.plain-2")
    assert [[row["v"] for row in stored.rows(name)["columns"].to_pylist()] for name in names] == [["5", "6"], [5]]


@pytest.mark.long
def test_every_type_of_cassandras_is_kept(local: Callable[..., IcebergHistory]) -> None:
    """The widest values of all of them, in a row each; narrow numbers are int."""
    kinds = sorted({kind for kind, _, _ in LARGEST})
    columns = {f"c_{kind}": kind for kind in kinds} | {f"l_{kind}": f"frozen<list<{kind}>>" for kind in kinds}
    of = table({"id": "int"}, regular=columns, keyspace="shop", name="plain")
    log, stored, topic = Log(of), local(), Topic()
    piece = topic.piece(
        *(
            log.insert((number,), (), 5, **{f"c_{kind}": value, f"l_{kind}": [value, None]})
            for number, (kind, value, _) in enumerate(LARGEST)
        )
    )
    assert deliver(stored, piece).rows == len(LARGEST)
    assert deliver(stored, piece) == Summary(changes=len(LARGEST))
    assert changes_of(stored.records(), of) == delivered_by(piece)
    found = stored.rows("shop.plain").schema.field("columns").type
    narrow = {"tinyint": "int32", "smallint": "int32"}
    for kind, _, arrow in LARGEST:
        assert str(found.field(f"c_{kind}").type) == narrow.get(kind, arrow)


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
