"""The processes of a server: each is told of its end, and none outlives the others or whoever has started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_server.cli.server import NOTHING_TO_DO, supervise
from tests.support.waiting import until

PART = """
import os, sys, threading
from pathlib import Path
from tailrace_common.cli.signals import stopping
from tailrace_server.cli.server import end_with_supervisor
import logging

role, folder = sys.argv[-1], Path(sys.argv[1])
stop = threading.Event()
with stopping(stop, logging.getLogger(), "ends"):
    if role.isdecimal():
        raise SystemExit(int(role))
    end_with_supervisor(stop)
    (folder / role).write_text(str(os.getpid()))
    stop.wait()
    (folder / role).rename(folder / f"{role}-in-order")
"""
WHOLE = """
import sys, threading
from tailrace_server.cli.server import supervise

sys.orig_argv[:] = [sys.executable, *sys.argv[1:]]
supervise(["a", "b"], threading.Event())
"""


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What one process of this server is: it ends with its role for a code, or once it is told to."""
    program = tmp_path / "part.py"
    program.write_text(PART)
    words = [sys.executable, str(program), str(tmp_path)]
    monkeypatch.setattr(sys, "orig_argv", words)
    return words


@pytest.fixture
def supervised(part: list[str]) -> Iterator[Callable[..., threading.Event]]:
    """Starts the processes of roles, by a thread that ends with the test."""
    del part
    stop, threads = threading.Event(), list[threading.Thread]()

    def start(*roles: str) -> threading.Event:
        threads.append(threading.Thread(target=supervise, args=(roles, stop)))
        threads[-1].start()
        return stop

    yield start
    stop.set()
    for thread in threads:
        thread.join()


@pytest.mark.slow
def test_all_are_told_to_end_and_end_in_order(tmp_path: Path, supervised: Callable[..., threading.Event]) -> None:
    """One that has nothing to do is no fault."""
    stop = supervised("a", str(NOTHING_TO_DO), "b")
    until(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists(), "both")
    stop.set()
    until(lambda: (tmp_path / "a-in-order").exists() and (tmp_path / "b-in-order").exists(), "the end of both")


@pytest.mark.slow
@pytest.mark.usefixtures("part")
@pytest.mark.parametrize("code", [0, 3])
def test_the_end_of_one_ends_the_others_with_an_error_that_says_so(tmp_path: Path, code: int) -> None:
    with pytest.raises(ServiceError, match=rf"process of the {code} has ended \(exit code {code}\)"):
        supervise(["a", str(code)], threading.Event())
    assert [file.name for file in tmp_path.glob("a*")] in ([], ["a-in-order"])  # told before it could be told, or after


@pytest.mark.slow
def test_none_outlives_a_supervisor_that_is_killed(tmp_path: Path, part: list[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", WHOLE, *part[1:]]) as whole:
        until(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists(), "both")
        os.kill(whole.pid, signal.SIGKILL)
    until(lambda: (tmp_path / "a-in-order").exists() and (tmp_path / "b-in-order").exists(), "the end of both")
