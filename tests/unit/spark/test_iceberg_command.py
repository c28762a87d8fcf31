"""`tailrace iceberg`, the page's example, and `tailrace check`, on a directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace_schemas.errors import SettingsError
from tailrace_spark.cli.lakes import iceberg
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tests.support.shop import PLAIN
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.iceberg.stores import FollowedIceberg
from tests.unit.spark.sinks.merging_contract import write
from tests.unit.spark.sinks.pages import run as run_example
from tests.unit.spark.sinks.pages import write_by_page


def run(path: Path, *words: str) -> list[dict[str, object]]:
    """The lines of one command."""
    told = [words[0], "-c", str(path / "t.toml"), *words[1:]]
    done = CliRunner().invoke(iceberg, told, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_tables_are_listed_compacted_and_expired(tmp_path: Path) -> None:
    section = IcebergSinkSettings(path=str(tmp_path / "lake"), mode="current", buckets=1)
    # A table is made by a commit of its own.
    followed = FollowedIceberg(section)
    for number in range(2):
        write(followed, Log(PLAIN).insert((number,), (), 1, v="a"))
    (tmp_path / "t.toml").write_text(f'[sink.x]\ntype = "iceberg"\npath = "{section.path}"\nmode = "current"\n')
    listed = run(tmp_path, "tables")
    assert [(one["table"], one["snapshots"], one["files"]) for one in listed] == [
        ("shop.plain", 3, 2), ("shop.plain-state", 3, 3),
    ]  # fmt: skip
    assert run(tmp_path, "compact", "--table", "shop.plain") == [{"table": "shop.plain", "removed": 2, "added": 1}]
    nothing = {"table": "shop.plain", "snapshots": 0, "orphans": 0}
    assert run(tmp_path, "expire", "--table", "shop.plain", "--dry-run") == [nothing]
    assert followed.rows(PLAIN, "id") == [(0,), (1,)]
    with pytest.raises(SettingsError, match=r"--table shop\.none: there is no such table; there: shop\.plain, "):
        run(tmp_path, "compact", "--table", "shop.none")


def test_another_sink_has_no_iceberg_tables(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('[sink.x]\nurl = "sqlite:///x.db"\n')
    with pytest.raises(SettingsError, match=r'sink\.x: type = "sql" has no Iceberg tables'):
        run(tmp_path, "tables")


@pytest.mark.slow
def test_the_example_writes_and_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_by_page("iceberg", tmp_path, path=str(tmp_path / "lake"), region=None, catalog={})
    run_example("iceberg", path=str(tmp_path / "lake"))
    assert capsys.readouterr().out == "1 a\n"
