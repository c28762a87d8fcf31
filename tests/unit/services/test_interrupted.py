"""A run of tests that somebody ends leaves no server behind, nor its files."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import until

ROOT = Path(__file__).parents[3]
SECONDS = 120
TEST = """
import threading
from pathlib import Path

import sqlalchemy as sa

from tests import postgres


def test_that_waits():
    with sa.create_engine(postgres.server_url()).connect() as connection:
        data = connection.exec_driver_sql("SHOW data_directory").scalar_one()
    part = Path(__file__).with_name("part")
    part.write_text(data)
    part.replace(part.with_name("started"))
    threading.Event().wait()
"""


@pytest.mark.integration
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name)
def test_postgresql_ends_with_the_run(tmp_path: Path, end: signal.Signals) -> None:
    test, started = tmp_path / "test_it.py", tmp_path / "started"
    test.write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "pyproject.toml", str(test)]
    with (tmp_path / "output").open("w+") as output, subprocess.Popen(command, cwd=ROOT, stdout=output) as run:
        until(
            started.exists,
            "the test's start",
            SECONDS,
            over=lambda: run.poll() is not None,
            state=lambda: (tmp_path / "output").read_text(),
        )
        data = Path(started.read_text())
        server = Path("/proc", (data / "postmaster.pid").read_text().split()[0])
        assert server.exists()
        run.send_signal(end)
        run.wait(SECONDS)
    until(lambda: not server.exists() and not data.parent.exists(), "the end of the server and its files", SECONDS)
    assert (b"KeyboardInterrupt" in (tmp_path / "output").read_bytes()) is (end == signal.SIGTERM)
