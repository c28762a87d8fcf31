"""`tailrace server --migrate-only`: the tables are made, and nothing is run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import complete


@pytest.mark.slow
def test_tables_are_made_and_the_command_ends(tmp_path: Path) -> None:
    meta, file = tmp_path / "meta.db", tmp_path / "tailrace.toml"
    file.write_text(f'[server]\nurl = "sqlite:///{meta}"\n')
    for _ in range(2):  # a second time there is nothing to do
        ended = CliRunner().invoke(complete(), ["server", "--migrate-only", "-c", str(file)])
        assert ended.exit_code == 0, ended.output
    with sqlite3.connect(meta) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    database.close()
    assert "alembic_version" in tables
    assert len(tables) > 3
