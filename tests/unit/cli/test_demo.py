"""`tailrace demo` before it starts anything."""

from __future__ import annotations

import errno
import signal
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.demo import hung_up
from tailrace.cli.main import complete
from tailrace_common.cli.signals import stopped_by_signals


def test_without_spark_it_says_so_before_it_fetches_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    answer = CliRunner().invoke(complete(), ["demo", "--directory", str(tmp_path / "demo")])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr == "tailrace: the demo needs pyspark: pip install 'tailrace[spark]'\n"
    assert not (tmp_path / "demo").exists()


def test_a_terminal_that_is_gone_is_its_hangup() -> None:
    """A write may fail before the shell passes SIGHUP on."""
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        with pytest.raises(KeyboardInterrupt), stopped_by_signals(), hung_up():
            raise OSError(errno.EIO, "the terminal is gone")
        with pytest.raises(OSError, match="full"), stopped_by_signals(), hung_up():
            raise OSError(errno.ENOSPC, "full")
    finally:
        signal.signal(signal.SIGHUP, inherited)
