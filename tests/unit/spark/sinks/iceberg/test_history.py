"""Histories in Iceberg tables: the contract of change logs in a directory, what stands there, and its upkeep."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest
from pyiceberg.catalog import load_catalog

from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.iceberg.maintenance import Maintenance
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tailrace_spark.sinks.lake.history import LakeHistory
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink
from tests.held import package
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, WIDE, Topic, batches, changes_of, deliver, delivered_by
from tests.unit.spark.sinks.iceberg.stores import NARROW, IcebergHistory, IcebergInTasks
from tests.unit.spark.sinks.lake.history_contract import LakeHistoryContract, two_at_a_time
from tests.unit.spark.sinks.lake.stores import overtaken

Stores = Callable[..., IcebergHistory]


def made_in(root: Path, kind: type[IcebergHistory] = IcebergHistory) -> Stores:
    """Makes stores: directories as sinks of their own have them."""
    numbers = count()
    return lambda **more: kind(IcebergSinkSettings.model_validate({"path": str(root / str(next(numbers))), **more}))


@pytest.fixture
def local(tmp_path: Path) -> Stores:
    return made_in(tmp_path)


@pytest.mark.promise("iceberg.once")
@pytest.mark.long
@pytest.mark.timeout(1800)
class TestIcebergHistory(LakeHistoryContract):
    sink = "iceberg"
    server_name = f"{package('pyiceberg')}, a directory"
    kind: type[IcebergHistory] = IcebergHistory
    narrow: ClassVar = NARROW

    @pytest.fixture
    def stores(self, tmp_path: Path) -> Stores:
        return made_in(tmp_path, self.kind)


@pytest.mark.promise("iceberg.once")
@pytest.mark.long
class TestIcebergHistoryInTasks(TestIcebergHistory):
    sink = "iceberg, in tasks"
    kind = IcebergInTasks


@pytest.mark.slow
@pytest.mark.promise("iceberg.once")
def test_a_history_has_each_change_once(local: Stores) -> None:
    """Batches that come again too, also after a step that failed."""
    stored, topic = local(), Topic()
    for batch in batches(topic):
        with closing(stored.open(dies_after=1, revives=True)) as sink:
            with pytest.raises(ServiceError, match="the process is dead"):
                write_here(sink, batch)
            write_here(sink, batch)
        assert deliver(stored, *batch).rows == 0
    again = [piece for batch in batches(Topic()) for piece in batch]
    assert changes_of(stored.records(), PLAIN).keys() == delivered_by(*again).keys()
    assert len(stored.letters.all) == sum(len(piece.dead_letters) for piece in again)


@pytest.mark.slow
@pytest.mark.promise("iceberg.two-writers")
def test_of_two_that_write_at_a_time_one_fails_and_finds_its_batch_done(local: Stores) -> None:
    two_at_a_time(local())


@pytest.mark.promise("iceberg.two-writers")
def test_a_refused_commit_is_not_made_again_over_another_writer_s(local: Stores) -> None:
    """pyiceberg does that by itself, on the newer snapshot, unless the table's properties say no: also of one whose
    owner changed that, or that another program made."""
    stored, topic, log = local(), Topic(), Log(PLAIN)
    deliver(stored, topic.piece(log.insert((0,), (), 1, v="x")))
    with stored.table("shop.plain").transaction() as transaction:
        transaction.remove_properties("commit.retry.num-retries")
    piece = topic.piece(log.insert((1,), (), 2, v="y"))

    with closing(ChangeLogSink(LakeHistory(overtaken(stored.opened(), lambda: deliver(stored, piece))))) as sink:
        with pytest.raises(ServiceError, match="another writer came first"):
            write_here(sink, [piece])
        assert write_here(sink, [piece]).rows == 0
    assert len(stored.records()) == 2
    assert stored.table("shop.plain").properties["commit.retry.num-retries"] == "0"


@pytest.mark.slow
@pytest.mark.promise("iceberg.two-writers")
def test_a_compaction_in_between_is_not_undone(local: Stores) -> None:
    stored, topic, log = local(), Topic(), Log(PLAIN)
    for number in range(2):
        deliver(stored, topic.piece(log.insert((number,), (), 1, v="x")))
    piece = topic.piece(log.insert((2,), (), 2, v="y"))

    compacted: list[object] = []
    store = overtaken(stored.opened(), lambda: compacted.append(stored.maintenance.compact("shop.plain")))
    with closing(ChangeLogSink(LakeHistory(store))) as sink:
        with pytest.raises(ServiceError, match="another writer came first"):
            write_here(sink, [piece])
        assert write_here(sink, [piece]).rows == 1
    assert compacted == [{"removed": 2, "added": 1}]
    assert len(stored.records()) == 3
    assert stored.maintenance.describe("shop.plain")["files"] == 2


@pytest.mark.slow
@pytest.mark.promise("iceberg.once")
def test_what_is_noted_outlives_compaction_and_expiry(local: Stores) -> None:
    """Both as `tailrace iceberg` does them. Files that only expired snapshots have are removed."""
    stored, topic, log = local(), Topic(), Log(PLAIN)
    pieces = [topic.piece(log.insert((0,), (), number, v="x")) for number in range(3)]
    for piece in pieces:
        deliver(stored, piece)
    work = Maintenance(stored.store, lambda: datetime.now(UTC) + timedelta(seconds=5))
    assert work.compact("shop.plain") == {"removed": 3, "added": 1}
    assert work.compact("shop.plain") == {"removed": 0, "added": 0}
    files = _data_files(stored)
    assert work.expire("shop.plain", 0, dry_run=True) == {"snapshots": 3, "orphans": 0}
    assert _data_files(stored) == files
    assert work.expire("shop.plain", 0, dry_run=False) == {"snapshots": 3, "orphans": 0}
    assert (len(files), len(_data_files(stored))) == (4, 1)
    assert work.describe("shop.plain")["snapshots"] == 1
    assert deliver(stored, *pieces).rows == 0
    assert len(stored.records()) == 3


@pytest.mark.slow
@pytest.mark.promise("iceberg.once")
def test_what_a_crash_left_is_removed_when_it_is_a_day_old(local: Stores) -> None:
    stored, topic, log = local(), Topic(), Log(PLAIN)
    deliver(stored, topic.piece(log.insert((0,), (), 1, v="x")))
    data, *_ = _data_files(stored)
    lost = data.with_name("lost.parquet")
    shutil.copy(data, lost)
    for hours, orphans in ((0, 0), (23, 0), (25, 1)):
        work = Maintenance(stored.store, partial(_later, hours))
        assert work.expire("shop.plain", 1, dry_run=False)["orphans"] == orphans
        assert lost.exists() == (not orphans)
    assert len(stored.records()) == 1


def _later(hours: int) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


def _data_files(stored: IcebergHistory) -> list[Path]:
    return sorted(Path(stored.settings.path, "shop/plain/data").rglob("*.parquet"))


def test_any_pyiceberg_opens_the_directory_s_catalog(local: Stores) -> None:
    stored = local()
    deliver(stored, Topic().piece(Log(PLAIN).insert((1,), (), 1, v="a")))
    uri = f"sqlite:///{stored.settings.path}/catalog.db"
    rows = load_catalog("tailrace", type="sql", uri=uri).load_table("shop.plain").scan().to_arrow()
    assert rows["columns"].to_pylist() == [{"v": "a", "w": None}]


def test_a_catalog_that_does_not_answer_is_told_in_one_line_without_credentials(tmp_path: Path) -> None:
    for catalog in (
        {"type": "sql", "uri": "postgresql+psycopg://me:hunter%402@127.0.0.1:1/x"},
        {"type": "rest", "uri": "http://127.0.0.1:1", "credential": "me:hunter@2"},
        {"py-catalog-impl": "no.such.Catalog", "token": "hunter@2"},
    ):
        section = IcebergSinkSettings.model_validate({"path": str(tmp_path), "catalog": catalog})
        with closing(open_sink("x", section, "p")) as sink, pytest.raises(ServiceError) as raised:
            sink.reach()
        shown = str(raised.value) + repr(section)
        assert "\n" not in str(raised.value)
        assert not [secret for secret in ("hunter@2", "hunter%402") if secret in shown]


@pytest.mark.slow
@pytest.mark.promise("iceberg.values")
def test_null_lists_of_structs_stay_null(local: Stores) -> None:
    """pyiceberg's own conversion makes empty lists of these, as it writes and as it reads. Also as files are merged."""
    stored, topic, log = local(), Topic(), Log(WIDE)
    for number, entries in enumerate((None, [], [{"key": "a", "value": 1}])):
        values = {} if entries is None else {"z": entries}
        deliver(stored, topic.piece(log.insert((number,), (), 1, v="x", **values)))
    for _ in range(2):
        assert [row["z"] for row in stored.rows("shop.plain")["columns"].to_pylist()] == [
            None, [], [{"key": "a", "value": 1}],
        ]  # fmt: skip
        assert stored.maintenance.compact("shop.plain")["added"] in (0, 1)
