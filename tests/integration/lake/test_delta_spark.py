"""Delta tables through Spark: the contracts of both kinds in a directory, and a table that both packages write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, TableFeatures

from tailrace_common.settings_sink_delta import DeltaSinkSettings
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.sinks.protocol import Piece
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import (
    PLAIN,
    WIDE,
    Topic,
    deliver,
    delivered_by,
    place_of,
)
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.delta_stores import DELTA_SPARK, DeltaStored, FollowedDelta, LetteredDelta
from tests.unit.spark.sinks.lake_current_contract import LakeCurrentContract, batches, require_select
from tests.unit.spark.sinks.lake_history_contract import LakeHistoryContract
from tests.unit.spark.sinks.letters_contract import LettersContract
from tests.unit.spark.sinks.merging_contract import write
from tests.unit.spark.sinks.test_documents import run as run_example
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVER = f"{DELTA_SPARK}, a directory"


@pytest.mark.long
@pytest.mark.timeout(1800)
class TestDeltaSparkHistory(LakeHistoryContract):
    sink = "delta"

    @pytest.fixture
    def server(self) -> str:
        return SERVER

    @pytest.fixture
    def stores(self, tmp_path: Path, spark: SparkSession) -> Callable[[], DeltaStored]:
        numbers = count()
        return lambda: DeltaStored(
            DeltaSinkSettings(path=str(tmp_path / str(next(numbers))), through="spark"), session=lambda: spark
        )


@pytest.mark.long
@pytest.mark.timeout(1800)
class TestDeltaSparkCurrent(LakeCurrentContract):
    sink = "delta"

    @pytest.fixture
    def server(self) -> str:
        return SERVER

    @pytest.fixture
    def followed(self, tmp_path: Path, spark: SparkSession) -> FollowedDelta:
        return _followed(tmp_path, spark)

    @pytest.fixture
    def another(self, tmp_path: Path, spark: SparkSession) -> Callable[[], FollowedDelta]:
        numbers = count()
        return lambda: _followed(tmp_path / str(next(numbers)), spark)


def _followed(path: Path, spark: SparkSession) -> FollowedDelta:
    section = DeltaSinkSettings(path=str(path), mode="current", buckets=2, through="spark")
    return FollowedDelta(section, lambda: spark)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["history", "current"])
class TestDeltaSparkLetters(LettersContract):
    sink = "delta"

    @pytest.fixture
    def stores(self, tmp_path: Path, mode: str, spark: SparkSession) -> Callable[[], LetteredDelta]:
        numbers = count()

        def new() -> LetteredDelta:
            section = {"path": str(tmp_path / str(next(numbers))), "mode": mode, "buckets": 2, "through": "spark"}
            return LetteredDelta(DeltaSinkSettings.model_validate(section), lambda: spark)

        return new


def _both(path: Path, spark: SparkSession, **more: object) -> Iterator[DeltaStored]:
    """The same path, through one package and the other by turns."""
    for through in cycle(("spark", "delta-rs")):
        section = DeltaSinkSettings.model_validate({"path": str(path), "through": through, **more})
        yield DeltaStored(section, session=lambda: spark)


@pytest.mark.long
def test_a_history_goes_on_through_the_other_package(tmp_path: Path, spark: SparkSession) -> None:
    """Each batch comes first through one and again, with more behind it, through the other; columns come."""
    topic, done = Topic(), list[Piece]()
    logs = [Log(PLAIN), Log(PLAIN), Log(WIDE), Log(WIDE)]
    for number, stored in zip(range(4), _both(tmp_path, spark), strict=False):
        value = {"x": 1.5} if number > 1 else {"v": "v"}
        done.append(topic.piece(*(logs[number].insert((key,), (), number, **value) for key in range(4)), letters=1))
        assert deliver(stored, *done[-2:]).rows == 4
        assert deliver(stored, *done).rows == 0
    assert {place_of(record) for record in stored.records()} == delivered_by(*done).keys()
    found = sorted(str(record["columns"]) for record in stored.records())
    assert found == ["{'v': 'v'}"] * 8 + ["{'x': 1.5}"] * 8
    assert len(stored.dead_letters()) == 4


@pytest.mark.long
def test_a_table_that_follows_goes_on_through_the_other_package(tmp_path: Path, spark: SparkSession) -> None:
    """Also where one died between the state and what it shows."""
    done = list[Change]()
    for batch, through in zip(batches(), ("spark", "delta-rs", "spark"), strict=True):
        section = DeltaSinkSettings.model_validate(
            {"path": str(tmp_path), "mode": "current", "buckets": 1, "through": through}
        )
        followed = FollowedDelta(section, lambda: spark)
        with closing(followed.open(dies_after=2)) as sink, pytest.raises(ServiceError, match="the process is dead"):
            sink.write([piece(batch)])
        done += batch
        other = section.model_copy(update={"through": "delta-rs" if through == "spark" else "spark"})
        write(FollowedDelta(other, lambda: spark), *batch)
        require_select(followed, done)


@pytest.mark.long
@pytest.mark.parametrize("first", ["spark", "delta-rs"])
def test_of_both_packages_at_a_time_one_fails_and_finds_its_batch_done(
    tmp_path: Path, spark: SparkSession, first: str
) -> None:
    """First where the table is not there yet, then where it is."""
    mine, other = sorted(islice(_both(tmp_path, spark), 2), key=lambda one: one.settings.through != first)
    topic, log = Topic(), Log(PLAIN)
    for number in range(2):
        some = topic.piece(log.insert((0,), (), number, v="x"))

        def overtaken(some: Piece = some) -> Iterator[Piece]:
            yield some
            deliver(other, some)

        with closing(mine.open()) as sink:
            with pytest.raises(ServiceError, match=r"another writer|already exists"):
                sink.write(overtaken())
            assert sink.write([some]).rows == 0
    assert [record["offset"] for record in mine.records()] == [0, 1]


@pytest.mark.long
def test_a_compaction_in_between_loses_nothing(tmp_path: Path, spark: SparkSession) -> None:
    """By `tailrace delta compact`, between the opening of a table and its commit; vacuumed behind it."""
    stored, *_ = islice(_both(tmp_path, spark), 1)
    topic, log, store = Topic(), Log(PLAIN), stored.store
    done = [topic.piece(log.insert((0,), (), number, v="x")) for number in range(3)]
    for some in done[:2]:
        deliver(stored, some)

    def meanwhile() -> Iterator[Piece]:
        yield done[2]
        assert store.compact("shop.plain") == {"removed": 2, "added": 1}

    with closing(stored.open()) as sink:
        assert sink.write(meanwhile()).rows == 1
    assert store.vacuum("shop.plain", 168, dry_run=False) == 0
    assert store.describe("shop.plain")["files"] == 2
    assert len(stored.records()) == 3
    assert deliver(stored, *done).rows == 0


def test_tables_are_the_same_through_either(tmp_path: Path, spark: SparkSession) -> None:
    """In rows, types, partitions and what Delta asks of a reader and a writer."""
    some = Topic().piece(Log(WIDE).insert((1,), (), 1, v="a", y=2**62))
    found = []
    for through in ("spark", "delta-rs"):
        section = DeltaSinkSettings.model_validate({"path": str(tmp_path / through), "through": through})
        deliver(DeltaStored(section, session=lambda: spark), some)
        made = DeltaTable(tmp_path / through / "shop.plain")
        about, asked = made.metadata(), made.protocol()
        found.append((made.schema(), about.partition_columns, about.description, asked, made.to_pyarrow_table()))
    assert found[0] == found[1]
    assert (asked.min_reader_version, asked.min_writer_version) == (1, 2)


def test_a_table_with_features_that_are_not_read_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    """Such as deletion vectors: without Delta's extension its rows would come back."""
    made = DeltaSinkSettings(path=str(tmp_path), through="spark")
    stored, log = DeltaStored(made, session=lambda: spark), Log(PLAIN)
    deliver(DeltaStored(DeltaSinkSettings(path=str(tmp_path))), Topic().piece(log.insert((1,), (), 1, v="a")))
    opened = stored.table("shop.plain")
    assert opened is not None
    opened.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(SettingsError, match="has features that the sink does not read, such as deletion vectors"):
        deliver(stored, Topic().piece(log.insert((2,), (), 1, v="a")))


def test_the_example_writes_and_reads(tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    run_example("delta", 1, path=str(tmp_path), spark=spark)
    assert capsys.readouterr().out == "insert {'id': 1} {'v': 'a', 'w': None}\n"


@pytest.mark.long
def test_rows_that_all_go_leave_a_table_without_rows(tmp_path: Path, spark: SparkSession) -> None:
    """Of columns with times within their values, of which PySpark makes nothing where there is no chunk of rows."""
    of = table({"id": "int"}, regular={"times": "frozen<list<timestamp>>"}, keyspace="shop", name="plain")
    settings = DeltaSinkSettings.model_validate({"path": str(tmp_path), "mode": "current", "through": "spark"})
    followed, log = FollowedDelta(settings, lambda: spark), Log(of)
    write(followed, log.insert((1,), (), 1, times=[0, None]))
    assert len(followed.rows(of, "id")) == 1
    write(followed, log.delete((1,), (), 2))
    assert followed.rows(of, "id") == []
