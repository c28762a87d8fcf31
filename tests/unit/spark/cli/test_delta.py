"""`tailrace delta`: what it lists, puts together and removes, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from tailrace_schemas.errors import SettingsError
from tailrace_spark.cli.lakes import delta
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.delta.stores import FollowedDelta
from tests.unit.spark.sinks.merging_contract import write

WEEK = 7 * 86_400


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A path with one table that was made, and written four times, and settings that name it."""
    section = DeltaSinkSettings(path=str(tmp_path / "lake"), mode="current", buckets=1)
    for number in range(4):
        write(FollowedDelta(section), Log(PLAIN).insert((number,), (), 1, v="a"))
    (tmp_path / "lake/notes.txt").write_text("not a table")
    (tmp_path / "t.toml").write_text(f'[sink.x]\ntype = "delta"\npath = "{section.path}"\nmode = "current"\n')
    return tmp_path / "lake"


def run(lake: Path, *words: str) -> list[dict[str, object]]:
    """The lines of one command."""
    done = CliRunner().invoke(delta, [words[0], "-c", str(lake.parent / "t.toml"), *words[1:]], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_tables_are_listed_compacted_and_vacuumed(lake: Path) -> None:
    listed = run(lake, "tables")
    assert [(one["table"], one["version"], one["files"]) for one in listed] == [
        ("shop.plain", 4, 4), ("shop.plain-state", 4, 5),
    ]  # fmt: skip
    assert all(isinstance(one["bytes"], int) and one["bytes"] > 0 for one in listed)
    assert run(lake, "compact", "--table", "shop.plain") == [{"table": "shop.plain", "removed": 4, "added": 1}]
    assert [one["files"] for one in run(lake, "tables")] == [1, 5]
    assert len(DeltaTable(lake / "shop.plain").to_pyarrow_table()) == 4


@pytest.mark.slow
def test_what_is_older_than_a_week_is_removed_and_the_rest_stays(lake: Path) -> None:
    """Files that no commit named too, as a crash leaves them."""
    run(lake, "compact")
    table = lake / "shop.plain"
    left = table / "__bucket=0" / "left-by-a-crash.parquet"
    left.write_bytes(b"half")
    assert run(lake, "vacuum", "--table", "shop.plain") == [{"table": "shop.plain", "removed": 0}]
    os.utime(left, (left.stat().st_mtime - 2 * WEEK,) * 2)
    assert run(lake, "vacuum", "--table", "shop.plain", "--dry-run") == [{"table": "shop.plain", "removed": 1}]
    assert left.exists()
    assert run(lake, "vacuum", "--table", "shop.plain") == [{"table": "shop.plain", "removed": 1}]
    assert not left.exists()
    assert len(DeltaTable(table).to_pyarrow_table()) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compact", "--table", "shop.none"), r"--table shop\.none: there is no such table; there: shop\.plain, "),
        (("tables", "--sink", "y"), r"--sink y: there is no \[sink\.y\]; set: x"),
    ],
)
def test_what_is_not_there_is_told(lake: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        run(lake, *words)


def test_another_sink_has_no_delta_tables(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('[sink.x]\nurl = "sqlite:///x.db"\n')
    with pytest.raises(SettingsError, match=r'sink\.x: type = "sql" has no Delta tables'):
        run(tmp_path / "lake", "tables")
