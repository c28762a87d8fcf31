"""The files sink: the contract of change logs in a directory, and what stands there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from pyarrow import fs

from tailrace_common.settings import load_settings
from tailrace_schemas.avro import decode
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table_json import table_from_json
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId, Summary
from tailrace_spark.batch.sink_progress import SinkProgress
from tailrace_spark.sinks.changelog.days import day_of
from tailrace_spark.sinks.files.formats import DEFINITION
from tailrace_spark.sinks.files.outlet import FileLimits
from tailrace_spark.sinks.files.reader import CommittedFiles
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import FileStore, GoneError, hidden
from tailrace_spark.sinks.registry import open_sink
from tests.held import package
from tests.properties import examples
from tests.support.every_type import ENCODER, SCHEMAS, row_changes
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, WIDE, ChangeLogContract, Topic, deliver, delivered_by
from tests.unit.spark.sinks.files.stores import Dying, Stored, StoredInTasks, local, names
from tests.unit.spark.sinks.half_configured import require_refused
from tests.unit.spark.sinks.widest import WIDEST
from tests.unit.tables import table

DAY = 86_400_000_000


class TestFiles(ChangeLogContract):
    sink = "files"

    @pytest.fixture
    def server(self) -> str:
        return f"{package('pyarrow')}, a directory"

    @pytest.fixture(params=[("parquet", True), ("jsonl", True), ("jsonl", False)], ids=["parquet", "gzip", "jsonl"])
    def stores(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Stored]:
        numbers = count()
        form, compress = request.param
        return lambda: local(tmp_path / str(next(numbers)), format=form, compress=compress)


@pytest.mark.slow
class TestFilesInTasks(TestFiles):
    sink = "files, in tasks"

    @pytest.fixture(params=["parquet", "jsonl"])
    def stores(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], StoredInTasks]:
        numbers = count()

        def new() -> StoredInTasks:
            root = tmp_path / str(next(numbers))
            section = FilesSinkSettings.model_validate({"path": str(root), "format": request.param})
            return StoredInTasks(section, fs.LocalFileSystem(), str(root), renames=True)

        return new


def test_files_stand_by_table_and_day(tmp_path: Path) -> None:
    """The day is that of the write time, UTC."""
    log = Log(PLAIN)
    stored = local(tmp_path)
    times = [0, DAY - 1, DAY, -1, 2**63 - 1, -(2**63)]
    deliver(stored, Topic().piece(*(log.insert((0,), (), at, v="x") for at in times)))
    found = [name.rpartition("/")[0] for name in names(tmp_path)]
    days = ["0001-01-01", "1969-12-31", "1970-01-01", "1970-01-02", "9999-12-31"]
    assert found == [f"shop.plain/day={day}" for day in days]
    reader = CommittedFiles.at(str(tmp_path))
    assert [file.records for file in reader.files()] == [1, 1, 2, 1, 1]
    assert [file.day for file in reader.files(since=date(1970, 1, 1), until=date(1970, 1, 2))] == days[2:4]
    assert all(file.bytes == (tmp_path / file.path).stat().st_size for file in reader.files())


@pytest.mark.parametrize(("written", "day"), [(0, "1970-01-01"), (-1, "1969-12-31"), (2**62, "9999-12-31")])
def test_days(written: int, day: str) -> None:
    assert day_of(written) == day


@pytest.mark.promise("files.directories")
@pytest.mark.slow
def test_no_reader_of_directories_sees_what_is_not_committed(tmp_path: Path) -> None:
    """Died at any step: of the second batch there is nothing, or all of it after the next start."""
    for step in count():
        root = tmp_path / str(step)
        stored, topic, log = local(root), Topic(), Log(PLAIN)
        deliver(stored, topic.piece(log.insert((0,), (), 5, v="x")))
        batch = topic.piece(*(log.insert((0,), (), DAY * day, v="y") for day in range(3)))
        with closing(stored.open(dies_after=step)) as sink:
            try:
                sink.write([batch])
            except ServiceError:
                committed = {file.path for file in CommittedFiles(stored.store).files()}
                assert set(names(root)) <= committed
                deliver(stored)
                assert set(names(root)) == committed
                continue
        assert len(names(root)) == 4
        return


@pytest.mark.slow
@pytest.mark.promise("files.once")
def test_a_step_that_fails_once_leaves_one_copy(tmp_path: Path) -> None:
    """Also where the manifest was written and the sink was told that it was not."""
    for step in count():
        stored, topic, log = local(tmp_path / str(step), format="jsonl"), Topic(), Log(PLAIN)
        batch = [topic.piece(*(log.insert((number,), (), DAY * number, v="x") for number in range(2)), letters=1)]
        failed = False
        with closing(stored.open(dies_after=step, revives=True)) as sink:
            try:
                sink.write(batch)
            except ServiceError:
                failed = True
                sink.write(batch)
        assert len(stored.records()) == 2, f"step {step} failed"
        assert len(stored.dead_letters()) == 1
        assert len(names(tmp_path / str(step))) == 2
        if not failed:
            assert step > 10
            return


LARGEST: list[tuple[str, object, str]] = [
    *WIDEST,
    ("timestamp", -(2**63), "timestamp[ms, tz=UTC]"),
    ("date", -(2**31), "date32[day]"),
    ("time", 86_399_999_999_999, "time64[ns]"),
]


@pytest.mark.slow
@pytest.mark.promise("files.values")
@pytest.mark.parametrize(("kind", "value", "arrow"), LARGEST, ids=[kind for kind, *_ in LARGEST])
def test_the_widest_value_of_each_type_fits(tmp_path: Path, kind: str, value: object, arrow: str) -> None:
    of = table({"id": "int"}, regular={"x": kind, "l": f"frozen<list<{kind}>>"}, keyspace="shop", name="wide")
    piece = Topic().piece(Log(of).insert((1,), (), 5, x=value, l=[value, None]))
    deliver(local(tmp_path), piece)
    reader = CommittedFiles.at(str(tmp_path))
    assert [change for _, change in reader.changes()] == [one.change for one in piece.changes]
    columns = reader.arrow("shop.wide").schema.field("columns").type
    assert {str(columns.field("x").type), str(columns.field("l").type.value_type)} == {arrow}


def test_sizes_are_limited(tmp_path: Path) -> None:
    stored, topic, log = local(tmp_path, format="jsonl", compress=False, file_mebibytes=1), Topic(), Log(PLAIN)
    stored.limits = FileLimits(group_records=20)
    piece = topic.piece(*(log.insert((0,), (), 5, v="x" * 20_000) for _ in range(150)))
    assert deliver(stored, piece) == Summary(150, 150, 0)
    sizes = [(tmp_path / name).stat().st_size for name in names(tmp_path)]
    assert len(sizes) == 3
    assert max(sizes) < (1 << 20) + 20 * 21_000
    assert [record["offset"] for record in stored.records()] == list(range(150))


@pytest.mark.slow
def test_more_days_than_files_may_be_open(tmp_path: Path) -> None:
    """In an order in which each comes again when its file has been ended."""
    stored, topic, log = local(tmp_path, format="jsonl"), Topic(), Log(PLAIN)
    piece = topic.piece(*(log.insert((0,), (), DAY * (number % 70), v="x") for number in range(140)))
    deliver(stored, piece)
    assert len(names(tmp_path)) == 140
    assert [place.offset for place, _ in CommittedFiles(stored.store).changes()] == list(range(140))


@pytest.mark.promise("files.values")
@pytest.mark.slow
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row_changes())
def test_parquet_keeps_every_value_of_every_type(tmp_path: Path, change: Change) -> None:
    wanted = decode(ENCODER.value(change), SCHEMAS)
    root = tmp_path / f"{change.digest.hex()}{len(list(tmp_path.iterdir()))}"
    stored = local(root)
    deliver(stored, Piece((Delivered(RecordId("t", 1, 7), wanted),)))
    assert list(CommittedFiles(stored.store).changes()) == [(RecordId("t", 1, 7), wanted)]


def test_parquet_has_the_sources_types(tmp_path: Path) -> None:
    """As any reader of Parquet sees them."""
    log = Log(WIDE)
    entries = [{"key": "a", "value": 1}]
    deliver(local(tmp_path), Topic().piece(log.insert((1,), (), DAY, v="é", w=-5, x=0.5, y=1_500, z=entries)))
    [name] = names(tmp_path)
    found = pq.read_table(tmp_path / name)
    columns = found.schema.field("columns").type
    types = {columns.field(number).name: str(columns.field(number).type) for number in range(columns.num_fields)}
    assert types == {
        "v": "string",
        "w": "int32",
        "x": "double",
        "y": "timestamp[ms, tz=UTC]",
        "z": "list<element: struct<key: string, value: int32>>",
    }
    [row] = found.to_pylist()
    assert row["columns"]["y"].isoformat() == "1970-01-01T00:00:01.500000+00:00"
    assert (row["op"], row["written"], row["key"], row["offset"]) == ("insert", DAY, {"id": 1}, 0)
    assert table_from_json(json.loads(found.schema.metadata[DEFINITION])) == WIDE


def test_columns_that_come_later_are_null_before(tmp_path: Path) -> None:
    stored, topic = local(tmp_path), Topic()
    deliver(stored, topic.piece(Log(PLAIN).insert((1,), (), 1, v="old")))
    deliver(stored, topic.piece(Log(WIDE).insert((1,), (), 2, v="new", x=1.5)))
    reader = CommittedFiles(stored.store)
    rows = [(row["columns"]["v"], row["columns"]["x"]) for row in reader.arrow("shop.plain").to_pylist()]
    assert rows == [("old", None), ("new", 1.5)]
    assert reader.arrow("shop.none") is None
    assert [change.table for _, change in reader.changes()] == [PLAIN, WIDE]


def test_a_follower_reads_what_is_new(tmp_path: Path) -> None:
    stored, topic, log = local(tmp_path), Topic(), Log(PLAIN)
    reader = CommittedFiles.at(str(tmp_path))
    seen = -1
    for number in range(3):
        deliver(stored, topic.piece(log.insert((0,), (), number, v="x")))
        [record] = reader.records(after=seen)
        assert record["offset"] == number
        seen = max(commit.number for commit in reader.commits())
    assert list(reader.records(after=seen)) == []
    assert list(reader.records("shop.other")) == []


@pytest.mark.slow
def test_ends_are_known_behind_many_commits(tmp_path: Path) -> None:
    """Each sixty-fourth manifest has them all: what moved before it and not since is still known."""
    stored, topic, log = local(tmp_path, format="jsonl"), Topic(), Log(PLAIN)
    first = topic.piece(log.insert((1,), (), 1, v="x"), log.insert((2,), (), 1, v="x"))
    deliver(stored, first)
    with closing(stored.open()) as sink:
        for number in range(70):
            sink.write([topic.piece(log.insert((0,), (), number, v="x"))])
    assert deliver(stored, first) == Summary(changes=2)
    assert len(stored.records()) == 72
    assert len(list((tmp_path / "_tailrace/commits").iterdir())) == 71


@pytest.mark.promise("files.two-streams")
def test_two_streams_cannot_write_below_one_root(tmp_path: Path) -> None:
    """The later one goes on; nothing of either's commits is lost."""
    stored, topic, log = local(tmp_path), Topic(), Log(PLAIN)
    pieces = [topic.piece(log.insert((0,), (), number, v="x")) for number in range(3)]
    earlier, later = stored.open(), stored.open()
    earlier.write([pieces[0]])
    later.write([pieces[1]])
    with pytest.raises(SettingsError, match="another stream has begun to write here"):
        earlier.write([pieces[1], pieces[2]])
    later.write([pieces[2]])
    assert [record["offset"] for record in stored.records()] == [0, 1, 2]


def test_a_newer_versions_commits_are_refused(tmp_path: Path) -> None:
    stored = local(tmp_path)
    deliver(stored, Topic().piece(Log(PLAIN).insert((0,), (), 1, v="x")))
    [manifest] = (tmp_path / "_tailrace/commits").iterdir()
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 9}))
    with pytest.raises(SettingsError, match=r"has the format 9, later than 2.*update"):
        deliver(stored, Topic().piece())


def test_a_root_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "t.toml"
    path.write_text(f'[sink.x]\ntype = "files"\npath = "{tmp_path}/file/below"\n', encoding="utf-8")
    sink = open_sink("x", load_settings(path, {}).sink["x"], "p")
    with pytest.raises(ServiceError, match="is no directory that this user may write"):
        sink.reach()


@pytest.mark.promise("sinks.half-configured")
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", 'sink.x.path is not set; give path = "s3://bucket/changes" or the like'),
        ('path = "/"', "path must name a directory"),
        ('path = "a"\naccess_key = "hunter2"', "access_key and secret_key are given both or not at all"),
        ('path = "a"\nformt = "jsonl"', "unknown setting sink.x.formt; did you mean sink.x.format?"),
    ],
)
def test_half_configured_it_is_refused(tmp_path: Path, lines: str, message: str) -> None:
    require_refused(tmp_path, "files", lines, message)


def test_other_places_are_refused() -> None:
    with pytest.raises(SettingsError, match="a directory or begins with s3://"):
        CommittedFiles.at("gs://bucket/x")


def test_what_is_read_back_is_what_was_delivered(tmp_path: Path) -> None:
    topic, log = Topic(), Log(PLAIN)
    piece = topic.piece(*(log.insert((number,), (), number, v="x") for number in range(9)))
    deliver(local(tmp_path), piece)
    found = {(p.topic, p.partition, p.offset): c for p, c in CommittedFiles.at(str(tmp_path)).changes("shop.plain")}
    assert found == delivered_by(piece)


class _Shown(Dying):
    """A file system in which another process shows a file in the moment after it was not found under its own name."""

    def get_file_info(self, paths: Sequence[str]) -> Any:
        found = super().get_file_info(paths)
        for info in found:
            self._show(info.path)
        return found

    def open_input_file(self, path: str) -> Any:
        try:
            return super().open_input_file(path)
        except FileNotFoundError:
            self._show(path)
            raise

    def _show(self, path: str) -> None:
        if Path(hidden(path)).exists():
            Path(hidden(path)).rename(path)


def test_a_file_that_is_shown_while_it_is_opened_is_read(tmp_path: Path) -> None:
    (tmp_path / ".x").write_bytes(b"what it has")
    store = FileStore(fs.PyFileSystem(_Shown(fs.LocalFileSystem(), -1)), str(tmp_path), renames=True)
    assert store.read("x") == b"what it has"
    with pytest.raises(GoneError, match="y: "):
        store.read("y")


@pytest.mark.promise("stream.restored-sink")
def test_how_far_a_stream_is_stands_below_the_root_and_is_no_data(tmp_path: Path) -> None:
    settings = FilesSinkSettings.model_validate({"type": "files", "path": str(tmp_path)})
    done = SinkProgress("5f", 7, {("t.ks.t", 0): 9})
    with closing(open_sink("f", settings, "t")) as sink:
        kept = sink.capabilities.progress
        assert kept is not None
        assert kept.progress("5f") is None
        kept.keep_progress(SinkProgress("5f", 6, {}))
        kept.keep_progress(done)
    with closing(open_sink("f", settings, "t")) as sink:
        kept = sink.capabilities.progress
        assert kept is not None
        assert kept.progress("5f") == done
        assert kept.progress("60") is None
    assert names(tmp_path) == []
    assert list(CommittedFiles.at(str(tmp_path)).files()) == []
