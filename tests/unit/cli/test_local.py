"""The commands around the services, without any."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.local import app, stopped_by_signals
from tailrace.local.running import hold
from tailrace_schemas.errors import ServiceError


@pytest.mark.parametrize("command", ["up", "status", "down"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"])
    assert shown.exit_code == 0
    assert f"Example: tailrace local {command}" in shown.output


def test_nothing_up_is_said(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["status", "--directory", str(tmp_path)])
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert f"nothing is up in {tmp_path}" in shown.stderr
    ended = CliRunner().invoke(app, ["down", "--directory", str(tmp_path)])
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert f"nothing was up in {tmp_path}" in ended.stderr


@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_second_up_starts_nothing(tmp_path: Path, options: list[str]) -> None:
    with hold(tmp_path):
        refused = CliRunner().invoke(app, ["up", "--directory", str(tmp_path), *options])
    assert isinstance(refused.exception, ServiceError)
    assert "is in use" in str(refused.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.json", "up.lock"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("before", ["SIG_DFL", "SIG_IGN"])
def test_both_signals_interrupt(number: signal.Signals, before: str) -> None:
    """SIGINT also where it was ignored, as a shell does for what it starts in the background."""
    program = _WAITING.format(number=int(number), before=before)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(number)
    rest, _ = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, "interrupted\n")


_WAITING = """
import signal
from tailrace.cli.local import stopped_by_signals
signal.signal({number}, signal.{before})
try:
    with stopped_by_signals():
        print("waits", flush=True)
        signal.pause()
except KeyboardInterrupt:
    print("interrupted")
assert signal.getsignal({number}) is signal.{before}
"""


def test_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopped_by_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
