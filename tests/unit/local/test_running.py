"""Who keeps the services of a directory is known to others, and can be ended by them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.local.running import end, hold, owner, states
from tailrace_schemas.errors import ServiceError

KEEPER = """
import signal, sys
from pathlib import Path
from tailrace.local.running import hold
with hold(Path(sys.argv[1])):
    print("holds", flush=True)
    signal.pause()
"""


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
