"""`tailrace snapshot`: what its command line may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import tailrace_spark.snapshot.session
from tailrace.cli.main import complete
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.cli.snapshot import definition_of
from tailrace_spark.snapshot.session import TableReading
from tailrace_spark.snapshot.settings import SnapshotSettings
from tests.unit.tables import table

ORDERS = table({"id": "int"}, {"line": "int"}, name="orders", keyspace="shop")


class View:
    """Of a cluster that takes each statement; `checked` are those that it was shown."""

    checked: list[str]

    def __init__(self, settings: SnapshotSettings) -> None:
        self._settings = settings
        View.checked = []

    def table(self) -> Table:
        return ORDERS

    def reading(self, settings: SnapshotSettings, table: Table) -> TableReading:
        return TableReading(settings, table, (5, 0), "dc1")

    def check(self, reading: TableReading) -> None:
        View.checked.append(reading.statement)

    def close(self) -> None:
        """There is nothing to close."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [["--rows-per-second", "100"], ["--concurrent-ranges", "4"], ["--consistency", "ONE"], ["--datacenter", "dc2"]],
)
def test_limits_that_a_stream_would_not_read_by_are_refused(tmp_path: Path, options: list[str]) -> None:
    """It reads by [snapshot]: at full speed, where an operator has asked for a hundred rows a second."""
    settings = tmp_path / "tailrace.toml"
    settings.write_text(f'[stream]\ncheckpoint = "{tmp_path}/checkpoint"\n')
    done = CliRunner().invoke(complete(), ["snapshot", "start", "shop.orders", "-c", str(settings), *options])
    assert done.exit_code == 2
    assert f"{options[0]}: for --to kafka" in done.output
    assert "[snapshot]" in done.output


def test_a_condition_is_looked_at_before_a_stream_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Cassandra too: a stream could only wait, and say why."""
    monkeypatch.setattr(tailrace_spark.snapshot.session, "ClusterView", View)
    definition_of(Settings(), "shop.orders", "line = 3")
    [statement] = View.checked
    assert statement.endswith(" AND line = 3 ALLOW FILTERING")
    with pytest.raises(SettingsError, match="without question marks and semicolons"):
        definition_of(Settings(), "shop.orders", "line = 3;")
