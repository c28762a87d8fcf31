"""Services that start side by side: what is said of one that dies while another still starts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.local.service import LocalService
from tailrace.local.services import await_all, end, hold, owner, states
from tailrace_schemas.errors import ServiceError
from tests.unit.local.servers import SERVER, StandIn

# Ready, and dead once that was seen: its last words are the reason.
DYING = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    print(sys.argv[2], flush=True)
    server.accept()
print("java.lang.OutOfMemoryError", flush=True)
sys.exit(3)
"""
NEVER_READY = SERVER.replace("print(ready", "print('starting'")
KEEPER = """
import signal, sys
from pathlib import Path
from tailrace.local.services import hold
with hold(Path(sys.argv[1])):
    print("holds", flush=True)
    signal.pause()
"""


@pytest.mark.slow
def test_a_service_that_dies_while_another_starts_ends_the_start(tmp_path: Path) -> None:
    """With its name and the end of its log, though the other one would start for two minutes."""
    dying, slow = StandIn(tmp_path / "dying", DYING), StandIn(tmp_path / "slow", NEVER_READY)
    words = f"server ended by itself. Its log is {dying.log}, which ends:\n  it is ready\n  java.lang.OutOfMemoryError"
    with ThreadPoolExecutor(2) as pool:
        starting: dict[Future[Any], LocalService] = {pool.submit(service.start): service for service in (dying, slow)}
        try:
            with pytest.raises(ServiceError, match=re.escape(words)):
                await_all(starting)
        finally:
            slow.kill()


@contextmanager
def keeper(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that keeps `directory`, as `tailrace local up` does while its services start."""
    command = [sys.executable, "-c", KEEPER, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        try:
            yield process
        finally:
            process.kill()


def test_nothing_is_known_of_an_unused_directory(tmp_path: Path) -> None:
    assert owner(tmp_path / "none") is None
    assert states(tmp_path / "none") == ()
    assert end(tmp_path / "none") is False


@pytest.mark.slow
def test_directory_has_one_keeper(tmp_path: Path) -> None:
    with keeper(tmp_path) as process:
        assert owner(tmp_path) == process.pid
        with pytest.raises(ServiceError) as caught:
            hold(tmp_path)
        assert str(caught.value) == (
            f"{tmp_path} is in use: services that are starting. `tailrace local down --directory {tmp_path}` ends it"
        )
        assert owner(tmp_path) == process.pid
    assert owner(tmp_path) is None
    hold(tmp_path).close()


def test_end_stops_the_keeper_even_while_it_starts(tmp_path: Path) -> None:
    with keeper(tmp_path) as process:
        assert end(tmp_path) is True
        assert process.wait(60) == -15
    assert end(tmp_path) is False
