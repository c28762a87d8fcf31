"""Compactions of a files sink in a directory: held to their contract, and what a directory has besides."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tailrace_schemas.errors import SettingsError
from tailrace_spark.cli.files import app
from tailrace_spark.sinks.files.reader import CommittedFiles
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, WIDE, Topic, deliver
from tests.unit.spark.sinks.files.compacting_contract import (
    CompactingContract,
    compact,
    manifests,
    read,
    small_batches,
)
from tests.unit.spark.sinks.files.stores import Stored, local, names


@pytest.mark.promise("files.compaction")
@pytest.mark.long
class TestInADirectory(CompactingContract):
    @pytest.fixture(params=[("parquet", True), ("jsonl", True), ("jsonl", False)], ids=["parquet", "gzip", "jsonl"])
    def stores(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Stored]:
        numbers = count()
        form, compress = request.param
        return lambda: local(tmp_path / str(next(numbers)), format=form, compress=compress)


@pytest.mark.promise("files.compaction")
def test_an_overtaken_stream_writes_nothing_into_a_pack(tmp_path: Path) -> None:
    contract = CompactingContract()
    contract.test_a_stream_that_was_overtaken_does_not_write_into_what_is_packed(lambda: local(tmp_path))


@pytest.mark.slow
@pytest.mark.promise("files.compaction")
def test_a_compaction_that_takes_longer_than_files_stay_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = CompactingContract()
    contract.test_one_that_takes_longer_than_files_stay_loses_nothing(lambda: local(tmp_path), monkeypatch)


@pytest.mark.slow
@pytest.mark.promise("files.compaction")
def test_a_reader_beside_a_compaction_sees_each_change_once(tmp_path: Path) -> None:
    CompactingContract().test_what_was_replaced_goes_after_some_hours(lambda: local(tmp_path))


@pytest.mark.slow
@pytest.mark.promise("files.compaction")
def test_two_compactions_double_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contract = CompactingContract()
    contract.test_a_compaction_beside_another_doubles_nothing(lambda: local(tmp_path), monkeypatch)


@pytest.mark.promise("files.compaction")
def test_a_reader_of_directories_finds_what_is_committed_when_it_is_done(tmp_path: Path) -> None:
    stored = local(tmp_path)
    for piece in small_batches(4, Topic()):
        deliver(stored, piece)
    compact(stored)
    assert names(tmp_path) == sorted(file.path for file in CommittedFiles(stored.store).files())
    table = CommittedFiles(stored.store).arrow("shop.plain")
    assert table.num_rows == len(read(stored)) == 14


@pytest.mark.promise("files.compaction")
def test_parquet_is_put_together_as_it_is(tmp_path: Path) -> None:
    """The same columns and definitions, in one row group."""
    stored, topic, log = local(tmp_path), Topic(), Log(WIDE)
    entries = [{"key": "a", "value": 1}]
    for number in range(3):
        deliver(stored, topic.piece(log.insert((1,), (), 1, v="é", w=number, x=0.5, y=1_500, z=entries)))
    before = [pq.read_table(tmp_path / name) for name in names(tmp_path)]
    compact(stored)
    [name] = names(tmp_path)
    after = pq.ParquetFile(tmp_path / name)
    assert after.schema_arrow.equals(before[0].schema, check_metadata=True)
    assert after.read().equals(pa.concat_tables(before))
    assert (after.metadata.num_row_groups, after.metadata.row_group(0).column(0).compression) == (1, "ZSTD")


def test_the_command_lists_and_compacts(tmp_path: Path) -> None:
    stored = local(tmp_path / "lake")
    for piece in small_batches(3, Topic()):
        deliver(stored, piece)
    (tmp_path / "t.toml").write_text(
        f'[sink.x]\ntype = "files"\npath = "{tmp_path}/lake"\n[sink.y]\ntype = "console"\n[stream]\nsink = "x"\n'
    )

    def run(*words: str) -> list[dict[str, object]]:
        done = CliRunner().invoke(app, [words[0], "-c", str(tmp_path / "t.toml"), *words[1:]], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    days = [("shop.plain", "1970-01-01", 4, 7), ("shop.plain", "1970-01-02", 3, 3)]
    listed = [(one["table"], one["day"], one["files"], one["changes"]) for one in run("list")]
    assert listed == days
    assert run("compact") == [{"commits": 3, "joined": 6, "made": 2, "removed": 0}]
    assert [(one["files"], one["changes"]) for one in run("list", "--sink", "x")] == [(2, 7), (1, 3)]
    for words, told in ((("--sink", "y"), "sink.y: type"), (("--sink", "z"), "there is no .sink.z.; set: x, y")):
        with pytest.raises(SettingsError, match=told):
            run("list", *words)


@pytest.mark.promise("files.compaction")
@pytest.mark.slow
def test_what_months_leave_is_short(tmp_path: Path) -> None:
    """A command for each some batches: the manifests are packs, as many as are full, and one more."""
    stored, topic, log = local(tmp_path, format="jsonl"), Topic(), Log(PLAIN)
    with closing(stored.open()) as sink:
        for number in range(100):
            sink.write([topic.piece(log.insert((0,), (), number, v="x"))])
            if number % 10 == 9:
                compact(stored, at=number * 3600, pack_commits=40)
    assert manifests(stored) == (0, 3)
    assert len(read(stored)) == 100
    assert len(names(tmp_path)) == 3
    assert len(stored.store.names("_tailrace/work")) <= 3
