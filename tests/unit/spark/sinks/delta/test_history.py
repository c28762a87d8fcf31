"""Histories in Delta tables: the contract of change logs in a directory, and what stands there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from tailrace_schemas.avro import decode
from tailrace_schemas.change import Change
from tailrace_schemas.change_json import ChangeJson
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId, Summary
from tailrace_spark.sinks.arrow.types import LAST_MOMENT
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.delta.store import DeltaStore
from tailrace_spark.sinks.lake.history import HistoryLimits, LakeHistory
from tailrace_spark.sinks.protocol import write_here
from tests.held import package
from tests.properties import examples
from tests.support.every_type import ENCODER, SCHEMAS, row_changes
from tests.support.history_records import change_records
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, WIDE, Topic, changes_of, deliver, delivered_by
from tests.unit.spark.sinks.delta.stores import DeltaInTasks, DeltaStored, section
from tests.unit.spark.sinks.hostile import FIELDS, row
from tests.unit.spark.sinks.lake.history_contract import DAY, LakeHistoryContract, two_at_a_time
from tests.unit.tables import table


def local(root: Path, *names: str, **more: object) -> DeltaStored:
    """A directory as a sink of its own has it."""
    return DeltaStored(section(root, **more), names)


class TestDeltaHistory(LakeHistoryContract):
    sink = "delta"
    server_name = f"{package('deltalake')}, a directory"
    kind: type[DeltaStored] = DeltaStored

    @pytest.fixture
    def stores(self, tmp_path: Path) -> Callable[[], DeltaStored]:
        numbers = count()
        return lambda: self.kind(section(tmp_path / str(next(numbers))))


@pytest.mark.slow
class TestDeltaHistoryInTasks(TestDeltaHistory):
    sink = "delta, in tasks"
    kind = DeltaInTasks


@pytest.mark.promise("delta.two-writers")
def test_of_two_that_write_at_a_time_one_fails_and_finds_its_batch_done(tmp_path: Path) -> None:
    two_at_a_time(local(tmp_path))


def test_a_batch_is_one_commit_of_each_table(tmp_path: Path) -> None:
    """However many pieces, definitions and days it has."""
    stored, topic, old, new = local(tmp_path), Topic(), Log(PLAIN), Log(WIDE)
    deliver(stored, topic.piece(old.insert((0,), (), 0, v="x")))
    pieces = [
        topic.piece(
            old.insert((0,), (), DAY * day, v="y"),
            new.insert((0,), (), DAY * day, x=1.5),
            old.insert((0,), (), DAY * day, w=day),
        )
        for day in range(3)
    ]
    assert deliver(stored, *pieces) == Summary(9, 9, 0)
    found = stored.table("shop.plain")
    assert found is not None
    assert found.version() == 3  # made, written, widened, written
    assert [record["columns"] for record in stored.records()[1:4]] == [{"v": "y"}, {"x": 1.5}, {"w": 0}]
    assert len(stored.records()) == 10


@pytest.mark.slow
@pytest.mark.promise("delta.once")
def test_what_is_there_is_told_behind_many_commits(tmp_path: Path) -> None:
    """Every so many commits there is a checkpoint, which a later process begins at."""
    stored, topic, log = local(tmp_path), Topic(), Log(PLAIN)
    first = topic.piece(log.insert((1,), (), 1, v="x"), log.insert((2,), (), 1, v="x"))
    deliver(stored, first)
    made = stored.table("shop.plain")
    assert made is not None
    made.alter.set_table_properties({"delta.checkpointInterval": "4"})
    with closing(stored.open()) as sink:
        for number in range(10):
            write_here(sink, [topic.piece(log.insert((0,), (), number, v="x"))])
    checkpoints = list((tmp_path / "shop.plain/_delta_log").glob("*.checkpoint*.parquet"))
    assert checkpoints
    assert deliver(stored, first) == Summary(changes=2)
    assert len(stored.records()) == 12


class CaseFolding(DeltaStore):
    """Holds `A` and `a` for one name, as Iceberg's catalogs in Hive and Glue do, and file systems of other machines."""

    def uri(self, name: str) -> str:
        return super().uri(name.lower())


@pytest.mark.promise("lake.names")
def test_tables_that_differ_by_case_have_histories_of_their_own_where_names_have_none(tmp_path: Path) -> None:
    stored = local(tmp_path)
    lower, upper = (replace(PLAIN, name=name, id=UUID(int=at)) for at, name in enumerate(("plain", "Plain")))
    pieces = [Topic(f"t.{of}").piece(Log(of).insert((1,), (), 1, v=of.name)) for of in (lower, upper)]
    with closing(ChangeLogSink(LakeHistory(CaseFolding(section(tmp_path))))) as sink:
        for piece in (*pieces, *pieces):
            write_here(sink, [piece])
    assert [record["table"] for record in stored.records()] == ["shop.plain", "shop.Plain"]
    assert changes_of(stored.records(), lower, upper).keys() == delivered_by(*pieces).keys()


@pytest.mark.promise("delta.values")
def test_a_column_that_two_definitions_of_a_batch_add_with_other_types(tmp_path: Path) -> None:
    """As of a table that was altered, dropped and made again while the stream stood still."""
    names = ("shop.plain", "shop.plain-2")
    stored, topic = local(tmp_path, *names), Topic()
    of = [
        table({"id": "int"}, regular={"v": "text", **more}, keyspace="shop", name="plain", table_id=UUID(int=number))
        for number, more in enumerate(({}, {"x": "text"}, {"x": "int"}))
    ]
    deliver(stored, topic.piece(Log(of[0]).insert((1,), (), 1, v="first")))
    batch = [topic.piece(Log(of[1]).insert((1,), (), 2, x="5"), Log(of[2]).insert((1,), (), 3, x=5))]
    for _ in range(2):
        deliver(stored, *batch)
    tables = [stored.rows(name) for name in names]
    assert all(one is not None for one in tables)
    assert [[row.get("x") for row in one["columns"].to_pylist()] for one in tables] == [[None, "5"], [5]]


@pytest.mark.promise("delta.values")
def test_timestamps_beyond_the_year_9999_are_as_near_as_it_gets(tmp_path: Path) -> None:
    """Wherever they stand; the record has Cassandra's bytes, and what is beside it is as it was."""
    far = 2**62
    of = table(
        {"id": "int"},
        {"c": "timestamp"},
        regular={
            "m": "map<timestamp, timestamp>",
            "t": "frozen<tuple<timestamp, int>>",
            "u": "timestamp",
            "l": "list<timestamp>",
        },
        keyspace="shop",
        name="plain",
    )
    log, stored, topic = Log(of), local(tmp_path), Topic()
    piece = topic.piece(
        log.insert((1,), (far,), 5, m={far: far, 7: 8}, t={"f0": -far, "f1": 3}, u=7, l={1: far}),
        log.update((1,), (7,), 6, m={far: None}, u=far),
        log.delete_range((1,), (-far,), (far,), 7),
    )
    deliver(stored, piece)
    assert changes_of(stored.records(), of) == delivered_by(piece)
    nearest = [row["u"] for row in _microseconds(stored)]
    assert nearest == [7_000, LAST_MOMENT * 1000, None]


def _microseconds(stored: DeltaStored) -> list[dict[str, object]]:
    """The column `u` as numbers; Python has no such days."""
    u = stored.rows("shop.plain")["columns"].combine_chunks().field("u").cast(pa.int64())
    return [{"u": value} for value in u.to_pylist()]


@pytest.mark.promise("delta.values")
@pytest.mark.slow
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row_changes())
def test_every_value_of_every_type_is_kept(tmp_path: Path, change: Change) -> None:
    wanted = decode(ENCODER.value(change), SCHEMAS)
    root = tmp_path / f"{change.digest.hex()}{len(list(tmp_path.iterdir()))}"
    name = str(wanted.table)
    stored = local(root, name)
    deliver(stored, Piece((Delivered(RecordId("t", 1, 7), wanted),)))
    [record] = change_records(name, stored.rows(name))
    assert ChangeJson(wanted.table).read(record) == wanted


def test_what_memory_does_not_hold_waits_in_a_file(tmp_path: Path) -> None:
    """In several definitions, one of which has more columns."""
    stored = DeltaStored(DeltaSinkSettings(path=str(tmp_path)), limits=HistoryLimits(memory_bytes=100))
    topic, old, new = Topic(), Log(PLAIN), Log(WIDE)
    pieces = [topic.piece(*(log.insert((n,), (), n, v=f"{n}") for n in range(50))) for log in (old, new, old)]
    deliver(stored, *pieces)
    assert changes_of(stored.records(), WIDE).keys() == delivered_by(*pieces).keys()
    assert [record["columns"] for record in stored.records()][:3] == [{"v": "0"}, {"v": "3"}, {"v": "6"}]


@pytest.mark.promise("sinks.one-table-alone")
def test_what_a_table_s_constraint_refuses_is_set_aside_when_the_batch_comes_again(tmp_path: Path) -> None:
    """Delta says so at the commit, when the changes are no more at hand. The other tables of the batch go in."""
    stored, topic, others = local(tmp_path), Topic(), Topic("t.shop.hostile")
    log, other = Log(PLAIN), FIELDS["fields that differ by case"]
    first, second = topic.piece(log.insert((1,), (), 1, v="a")), topic.piece(log.delete((1,), (), 2))
    deliver(stored, first)
    found = stored.table("shop.plain")
    assert found is not None
    found.alter.add_constraint({"no_deletes": "op <> 'delete'"})
    batch = [second, others.piece(*row(other))]
    with closing(stored.open()) as sink:
        with pytest.raises(ServiceError, match=r"shop\.plain is refused: .*; its changes will be set aside") as raised:
            write_here(sink, batch)
        assert "Preview" not in str(raised.value)
        done = write_here(sink, batch)
        assert done == Summary(2, 1, 1)
        assert done.refused.keys() == {"shop.plain"}
        assert write_here(sink, [others.piece(*row(other, 50))]) == Summary(1, 1, 0)
    records = [one for one in stored.records() if one["table"] == "shop.plain"]
    assert changes_of(records, PLAIN) == delivered_by(first)
    [letter] = stored.letters.all
    assert "Invalid data found" in letter.reason


@pytest.mark.promise("upgrade.later-records")
def test_a_table_of_a_later_version_is_refused(tmp_path: Path) -> None:
    """By the number in the commit that made it."""
    stored, topic = local(tmp_path), Topic()
    deliver(stored, topic.piece(Log(PLAIN).insert((1,), (), 1, v="a")))
    first = tmp_path / "shop.plain/_delta_log" / f"{0:020}.json"
    assert first.read_text().count('"appId":"tailrace/format","version":1') == 1
    first.write_text(first.read_text().replace('"tailrace/format","version":1', '"tailrace/format","version":2'))
    with pytest.raises(SettingsError, match=r"another version of Tailrace .*format 2; this one reads 1"):
        deliver(stored, topic.piece(Log(PLAIN).insert((2,), (), 1, v="b")))
