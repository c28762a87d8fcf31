"""`tailrace snapshot`: what its command line may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import complete


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
