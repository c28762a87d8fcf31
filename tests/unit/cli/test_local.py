"""The commands around the services, without any."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.local import app, end_remains
from tailrace.local.services import hold
from tailrace_schemas.errors import ServiceError


def test_nothing_up_is_said(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["status", "--directory", str(tmp_path)])
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert f"nothing is up in {tmp_path}" in shown.stderr
    ended = CliRunner().invoke(app, ["down", "--directory", str(tmp_path)])
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert f"nothing was up in {tmp_path}" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_second_up_starts_nothing(tmp_path: Path, options: list[str]) -> None:
    with hold(tmp_path):
        refused = CliRunner().invoke(app, ["up", "--directory", str(tmp_path), *options])
    assert isinstance(refused.exception, ServiceError)
    assert "is in use" in str(refused.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json", "up.lock"]


KEEPER = """
import json, pathlib, signal, sys
from tailrace.local.services import hold
directory = pathlib.Path(sys.argv[1])
lock = hold(directory)
state = json.loads((directory / "state.json").read_text())
dead = {"service": "kafka", "state": "running", "address": "127.0.0.1:1", "pid": 1, "log": ""}
(directory / "state.json").write_text(json.dumps({**state, "services": [dead]}))
print("holds", flush=True)
signal.pause()
"""


def test_what_is_left_beside_a_dead_service_is_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that `up` starts all of it again, and does not say that the directory is in use."""
    command = [sys.executable, "-c", KEEPER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdout.readline() == "holds\n"
        end_remains(tmp_path)
        assert keeper.wait(60) == -signal.SIGTERM
    assert capsys.readouterr().err.startswith("kafka died: stopping what else runs")
    hold(tmp_path).close()
    end_remains(tmp_path)
    assert capsys.readouterr().err == ""
