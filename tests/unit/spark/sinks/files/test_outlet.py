"""The files sink: the contract of change logs in a directory, and what stands there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from tailrace_schemas.avro import decode
from tailrace_schemas.change import Change, Op
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.table_json import table_from_json
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, SinkProgress, Summary
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.files.formats import DEFINITION, FileName, source_of
from tailrace_spark.sinks.files.outlet import FileLimits, FilesSink
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.files.store import TakenError
from tailrace_spark.sinks.protocol import AGAIN, write_here
from tailrace_spark.sinks.registry import open_sink
from tests.held import package
from tests.properties import examples
from tests.support.every_type import ENCODER, SCHEMAS, row_changes
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import (
    PLAIN,
    ChangeLogContract,
    Topic,
    changes_of,
    deliver,
    delivered_by,
    place_of,
)
from tests.unit.spark.sinks.files.stores import Stored, StoredInTasks, local, names
from tests.unit.spark.sinks.widest import WIDEST
from tests.unit.tables import table

DAY = 86_400_000_000


class TestFiles(ChangeLogContract):
    sink = "files"

    server_name = f"{package('pyarrow')}, a directory"

    @pytest.fixture(params=[("parquet", True), ("jsonl", True), ("jsonl", False)], ids=["parquet", "gzip", "jsonl"])
    def stores(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Stored]:
        numbers = count()
        form, compress = request.param
        return lambda: local(tmp_path / str(next(numbers)), format=form, compress=compress)


@pytest.mark.slow
class TestFilesInTasks(TestFiles):
    sink = "files, in tasks"

    @pytest.fixture(params=["parquet", "jsonl"])
    def stores(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Stored]:
        numbers = count()
        return lambda: local(tmp_path / str(next(numbers)), StoredInTasks, format=request.param)


def test_files_say_table_day_and_place(tmp_path: Path) -> None:
    """The day is that of the write time, UTC; partition, first and last offset are Kafka's."""
    log = Log(PLAIN)
    times = [0, DAY - 1, DAY, -1, 2**63 - 1, -(2**63)]
    deliver(local(tmp_path), Topic().piece(*(log.insert((0,), (), at, v="x") for at in times), log.delete((1,), (), 5)))
    spans = {
        "0001-01-01": [(0, 5, 5)], "1969-12-31": [(0, 3, 3)], "1970-01-01": [(0, 0, 1), (1, 0, 0)],
        "1970-01-02": [(0, 2, 2)], "9999-12-31": [(0, 4, 4)],
    }  # fmt: skip
    assert names(tmp_path) == [
        f"shop.plain/day={day}/t.shop.plain-{partition}-{first:020}-{last:020}.parquet"
        for day, places in spans.items()
        for partition, first, last in places
    ]


def test_topics_of_any_length_have_names_that_fit() -> None:
    names_of_two = [source_of(("t" * 248 + end, 11)) for end in "ab"]
    assert len(set(names_of_two)) == 2
    for source in names_of_two:
        name = FileName(source, 2**63 - 2, 2**63 - 1)
        assert FileName.of(f"a/{name.with_suffix('.jsonl.gz')}") == name
        assert len(name.with_suffix(".jsonl.gz")) <= 143
    assert FileName.of("a/00000000000000000000-0123456789ab-1-0.parquet") is None


CUTS: Mapping[str, Callable[[list[Piece], Piece], list[list[Piece]]]] = {
    "the same": lambda batch, more: [batch, [more]],
    "more behind it": lambda batch, more: [[*batch, more]],
    "less, and the rest": lambda batch, more: [[batch[0]], [batch[1], more]],
}
"""How a batch is redelivered, and what is behind it."""


@pytest.mark.slow
@pytest.mark.promise("files.once", "files.directories")
@pytest.mark.parametrize(
    ("cut", "tasks"),
    [
        ("the same", (True, False)), ("more behind it", (False, False)), ("less, and the rest", (False, True)),
        ("less, and the rest", (True, True)),
    ],
)  # fmt: skip
def test_cut_off_at_any_step_a_batch_is_there_once_when_it_has_come_again(
    tmp_path: Path, cut: str, tasks: tuple[bool, bool]
) -> None:
    """By the driver or by `tasks`, cut otherwise; meanwhile nothing is there twice, and what was before it stays."""
    for step in count():
        kinds = [StoredInTasks if in_tasks else Stored for in_tasks in tasks]
        stores = [local(tmp_path / str(step), kind) for kind in kinds]
        topic, log = Topic(), Log(PLAIN)
        before = topic.piece(*(log.insert((number,), (), 5, v="x") for number in range(3)))
        batch = [
            topic.piece(*(log.insert((number,), (), DAY * (number % 2), v=word) for number in range(4)), letters=1)
            for word in "yz"
        ]
        more = topic.piece(log.insert((3,), (), DAY, v="more"), letters=1)
        deliver(stores[0], before)
        died = True
        with closing(stores[0].open(dies_after=step)) as sink, suppress(ServiceError):
            write_here(sink, batch)
            died = False
        require_once(stores[0], delivered_by(before, *batch), delivered_by(before))
        for again in CUTS[cut](batch, more):
            deliver(stores[1], *again)
            require_once(stores[1], delivered_by(before, *batch, more), delivered_by(before))
        wanted = delivered_by(before, *batch, more)
        require_once(stores[1], wanted, wanted)
        assert len(stores[1].letters.all) == 3, f"died after {step} steps"
        if not died:
            assert step > 10
            return


def require_once(stored: Stored, most: Collection[object], least: Collection[object]) -> None:
    """That readers see these places at most, and those at least, and none twice."""
    places = [place_of(record) for record in stored.records()]
    assert len(places) == len(set(places))
    assert set(least) <= set(places) <= set(most)


@pytest.mark.slow
@pytest.mark.promise("files.once")
def test_a_step_that_fails_once_leaves_one_copy(tmp_path: Path) -> None:
    """Also where the step was done and the sink was told that it was not."""
    for step in range(60):
        stored, topic, log = local(tmp_path / str(step), format="jsonl"), Topic(), Log(PLAIN)
        batch = [topic.piece(*(log.insert((number,), (), DAY * number, v="x") for number in range(2)), letters=1)]
        failed = False

        def broken_off(pieces: list[Piece] = batch) -> Iterator[Piece]:
            yield from pieces
            raise ServiceError("Kafka does not answer")

        with closing(stored.open(dies_after=step, revives=True)) as sink:
            with suppress(ServiceError):
                write_here(sink, broken_off())
            try:
                write_here(sink, batch)
            except ServiceError:
                failed = True
                write_here(sink, batch)
        assert len(stored.records()) == 2, f"step {step} failed"
        assert len(stored.letters.all) == 1
        assert len(names(tmp_path / str(step))) == 2
    assert not failed


@pytest.mark.promise("files.once")
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_stream_without_its_checkpoint_writes_what_it_reads_in_the_stead_of_what_was_there(
    tmp_path: Path, form: str
) -> None:
    """In smaller batches, in another form, and from the middle of a file on: what stands before it stays."""
    log, topic = Log(PLAIN), Topic()
    pieces = [topic.piece(log.insert((0,), (), number, v="old")) for number in range(9)]
    deliver(local(tmp_path, format=form), *pieces)
    again = [replace(piece, changes=tuple(replace(one, assignment=None) for one in piece.changes)) for piece in pieces]
    stored = local(tmp_path, format="jsonl", compress=False)
    for begin in (2, 5, 8):
        deliver(stored, *again[begin : begin + 3])
        require_once(stored, delivered_by(*pieces), delivered_by(*pieces[: begin + 3]))
    assert len(stored.records()) == 9
    with closing(stored.open()) as sink:
        write_here(sink, again[0:4])
        write_here(sink, again[4:9])
    assert [record["stream_id"] for record in stored.records()] == [None] * 9


def test_a_row_that_a_snapshot_reads_again_may_be_of_another_day(tmp_path: Path) -> None:
    """It was written meanwhile."""
    stored, log, topic = local(tmp_path), Log(PLAIN), Topic("t.shop.plain@1")
    rows = topic.piece(*(replace(log.insert((number,), (), 5, v="x"), op=Op.READ) for number in (0, 3)))
    deliver(stored, rows)
    moved = replace(rows.changes[0], change=replace(log.insert((0,), (), DAY, v="y"), op=Op.READ))
    deliver(stored, replace(rows, changes=(moved, rows.changes[1])))
    assert [record["columns"]["v"] for record in stored.records()] == ["y", "x"]
    deliver(stored, replace(rows, changes=(moved,)))
    assert [record["columns"]["v"] for record in stored.records()] == ["y", "x"]


def test_files_that_are_not_ours_stay(tmp_path: Path) -> None:
    stored, piece = local(tmp_path), Topic().piece(Log(PLAIN).insert((0,), (), 5, v="x"))
    deliver(stored, piece)
    directory = tmp_path / "shop.plain/day=1970-01-01"
    others = ["other.parquet", f"t.shop.plain-1-{0:020}-{0:020}.parquet", f"t.shop.plain-0-{1:020}-{1:020}.parquet"]
    for name in others:
        (directory / name).write_text("what somebody put here")
    deliver(stored, piece)
    assert len(list(directory.iterdir())) == 1 + len(others)


@pytest.mark.promise("files.two-streams")
def test_two_streams_cannot_write_below_one_root(tmp_path: Path) -> None:
    """The later one goes on, whatever the earlier one was doing; nothing of either is lost, or there twice."""
    stored, topic, log = local(tmp_path), Topic(), Log(PLAIN)
    pieces = [topic.piece(log.insert((0,), (), number, v="x")) for number in range(3)]
    earlier, later = stored.open(), stored.open()
    write_here(earlier, [pieces[0]])

    def overtaken() -> Iterator[Piece]:
        yield pieces[1]
        write_here(later, [pieces[1], pieces[2]])

    for batch in (overtaken(), [pieces[1]]):
        with pytest.raises(SettingsError, match="another stream has begun to write here"):
            write_here(earlier, batch)
    assert [record["offset"] for record in stored.records()] == [0, 1, 2]
    assert len(names(tmp_path)) == 2


@pytest.mark.promise("sinks.dead-letters")
def test_a_batch_that_has_what_was_written_again_takes_its_file_away(tmp_path: Path) -> None:
    """As of a stream without its checkpoint; one that sets it aside again leaves the file, and another replay too."""
    stored, topic = local(tmp_path), Topic()
    piece = topic.piece(Log(PLAIN).insert((1,), (), 1, v="a"))
    [change] = piece.changes
    aside = Piece((), (DeadLetter(change.record_id, "why", change.message),))
    for _ in range(2):
        deliver(stored, aside)
        with closing(ChangeLogSink(stored.outlet())) as sink:
            assert write_here(sink, [piece], AGAIN) == Summary(1, 1)
        assert len(stored.records()) == 1
    deliver(stored, piece)
    assert len(stored.records()) == len(names(tmp_path)) == 1
    assert not names(tmp_path)[0].endswith("-replayed.parquet")


@pytest.mark.promise("sink.successor")
def test_a_writer_that_was_stopped_before_its_first_batch_takes_nothing_from_its_heir(tmp_path: Path) -> None:
    """Whose file begins where that batch does, and goes further."""
    stored, topic, log = local(tmp_path), Topic(), Log(PLAIN)
    first, second, third = (topic.piece(log.insert((3 * number,), (), number, v="a")) for number in range(3))
    outlets = stored.outlet(), stored.outlet()
    with closing(FilesSink(outlets[0])) as stopped, closing(FilesSink(outlets[1])) as heir:
        for outlet in outlets:
            outlet.claim("copy")
        write_here(heir, [first, second])
        with pytest.raises(TakenError):
            write_here(stopped, [first])
        write_here(heir, [third])
    assert changes_of(stored.records(), PLAIN) == delivered_by(first, second, third)


@pytest.mark.promise("sinks.dead-letters")
def test_a_replay_that_a_stream_overtakes_is_run_again(tmp_path: Path) -> None:
    stored, topic = local(tmp_path), Topic()
    pieces = [topic.piece(Log(PLAIN).insert((1,), (), number, v="a")) for number in range(2)]

    def beside() -> Iterator[Piece]:
        yield pieces[0]
        deliver(stored, pieces[1])

    with closing(ChangeLogSink(stored.outlet())) as sink:
        with pytest.raises(ServiceError, match="run this again"):
            write_here(sink, beside(), AGAIN)
        assert len(stored.records()) == 1
        assert write_here(sink, [pieces[0]], AGAIN).rows == 1
    assert [record["offset"] for record in stored.records()] == [0, 1]


def test_what_a_later_version_wrote_is_refused(tmp_path: Path) -> None:
    stored = local(tmp_path)
    deliver(stored, Topic().piece(Log(PLAIN).insert((0,), (), 1, v="x")))
    stored.store.write("_tailrace/reach.json", b'{"format": 9}')
    with pytest.raises(SettingsError, match=r"another version .*\(format 9; this one reads 1"):
        deliver(stored, Topic().piece(letters=1))
    assert len(stored.letters.all) == 0


def test_the_names_of_files_and_of_their_directories_outlive_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is on the disk when its directory has been synced; so is the name of that in the one above it."""
    synced: set[Path] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    deliver(local(tmp_path), Topic().piece(Log(PLAIN).insert((0,), (), DAY, v="x")))
    [name] = names(tmp_path)
    assert {*(tmp_path / name).parents} - {*tmp_path.parents} <= synced


def test_sizes_are_limited(tmp_path: Path) -> None:
    stored, topic, log = local(tmp_path, format="jsonl", compress=False, file_mebibytes=1), Topic(), Log(PLAIN)
    stored.limits = FileLimits(group_records=20)
    piece = topic.piece(*(log.insert((0,), (), 5, v="x" * 20_000) for _ in range(150)))
    assert deliver(stored, piece) == Summary(150, 150, 0)
    sizes = [(tmp_path / name).stat().st_size for name in names(tmp_path)]
    assert len(sizes) == 3
    assert max(sizes) < (1 << 20) + 20 * 21_000
    assert [record["offset"] for record in stored.records()] == list(range(150))


def test_large_values_wait_for_no_others(tmp_path: Path) -> None:
    """20,000 of them, as many as small ones, would fill the memory of any machine. Each write is a row group."""
    stored, log = local(tmp_path), Log(PLAIN)
    stored.limits = FileLimits(buffered_bytes=200_000)
    deliver(stored, Topic().piece(*(log.insert((0,), (), DAY, v="x" * 20_000) for _ in range(30))))
    [name] = names(tmp_path)
    groups = pq.ParquetFile(tmp_path / name).metadata
    assert [groups.row_group(number).num_rows for number in range(groups.num_row_groups)] == [10, 10, 10]


@pytest.mark.slow
def test_more_days_than_files_may_be_open(tmp_path: Path) -> None:
    """In an order in which each comes again when its file has been ended."""
    stored, topic, log = local(tmp_path, format="jsonl"), Topic(), Log(PLAIN)
    piece = topic.piece(*(log.insert((0,), (), DAY * (number % 70), v="x") for number in range(140)))
    deliver(stored, piece)
    assert len(names(tmp_path)) == 140
    assert [record["offset"] for record in stored.records()] == list(range(140))


@pytest.mark.promise("files.values")
@pytest.mark.slow
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row_changes())
def test_parquet_keeps_every_value_of_every_type(tmp_path: Path, change: Change) -> None:
    wanted = decode(ENCODER.value(change), SCHEMAS)
    root = tmp_path / f"{change.digest.hex()}{len(list(tmp_path.iterdir()))}"
    stored = local(root)
    deliver(stored, Piece((Delivered(RecordId("t", 1, 7), wanted),)))
    assert stored.changes() == [(RecordId("t", 1, 7), wanted)]


@pytest.mark.promise("files.values")
def test_parquet_has_the_sources_types(tmp_path: Path) -> None:
    """As any reader of Parquet sees them, in lists too."""
    arrow = {kind: arrow_type for kind, _, arrow_type in WIDEST}
    arrow |= {"timestamp": "timestamp[ms, tz=UTC]", "date": "date32[day]", "time": "time64[ns]"}
    kinds = {**{f"x{kind}": kind for kind in arrow}, **{f"l{kind}": f"frozen<list<{kind}>>" for kind in arrow}}
    of = table({"id": "int"}, regular={**kinds, "m": "frozen<map<text, int>>"}, keyspace="shop", name="wide")
    deliver(local(tmp_path), Topic().piece(Log(of).insert((1,), (), DAY, xtimestamp=1_500)))
    [name] = names(tmp_path)
    found = pq.read_table(tmp_path / name)
    columns = found.schema.field("columns").type
    assert {field.name: str(field.type).replace("list<element: ", "list<") for field in columns} == {
        **{f"x{kind}": arrow_type for kind, arrow_type in arrow.items()},
        **{f"l{kind}": f"list<{arrow_type}>" for kind, arrow_type in arrow.items()},
        "m": "list<struct<key: string, value: int32>>",
    }
    [row] = found.to_pylist()
    assert row["columns"]["xtimestamp"].isoformat() == "1970-01-01T00:00:01.500000+00:00"
    assert (row["op"], row["written"], row["key"], row["offset"]) == ("insert", DAY, {"id": 1}, 0)
    assert table_from_json(json.loads(found.schema.metadata[DEFINITION])) == of


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
