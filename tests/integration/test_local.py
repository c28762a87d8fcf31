"""`tailrace local` keeps real services up, and leaves none behind, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.local.ports import is_open
from tailrace.local.process import is_locked
from tests.support.waiting import until

TAILRACE = (sys.executable, "-c", "from tailrace.cli.main import run; run()", "local")


def local(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TAILRACE, *arguments], check=check, capture_output=True, text=True, timeout=600)


def is_open_at(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition("/")[0].rpartition(":")
    return is_open(host, int(port))


class Up:
    """A running `tailrace local up` and what it printed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        command = [*TAILRACE, "up", "--directory", str(directory)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.services: list[dict[str, Any]] = [json.loads(self.process.stdout.readline()) for _ in range(2)]

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Its exit code and what it said on stderr."""
        self.process.send_signal(number)
        _, words = self.process.communicate(timeout=600)
        return self.process.returncode, words

    def running(self) -> list[str]:
        """The services that are still there; each holds the lock of its directory as long as it lives."""
        names = [service["service"] for service in self.services]
        return [name for name in names if is_locked(self.directory / name, name)]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    started = Up(tmp_path / "up")
    yield started
    if started.process.poll() is None:
        started.end(signal.SIGTERM)


def test_up_prints_where_the_services_are_and_keeps_them_until_sigterm(up: Up) -> None:
    assert [service["service"] for service in up.services] == ["cassandra", "kafka"]
    for service in up.services:
        assert service["state"] == "running"
        assert is_open_at(service["address"])
        assert Path(service["log"]).is_file()
    assert Path(up.services[0]["cdc_raw"]).is_dir()
    assert up.running() == ["cassandra", "kafka"]
    addresses = " and ".join(f"{service['service']} on {service['address']}" for service in up.services)
    second = local("up", "--directory", str(up.directory), check=False)
    assert second.returncode == 1
    assert f"{up.directory} is in use: {addresses.replace(' and', ',')}" in second.stderr
    assert up.running() == ["cassandra", "kafka"]
    code, words = up.end(signal.SIGTERM)
    assert (code, words.splitlines()[-1]) == (0, "stopping")
    assert up.running() == []
    shown = local("status", "--directory", str(up.directory), check=False)
    assert shown.returncode == 1
    assert [json.loads(line)["state"] for line in shown.stdout.splitlines()] == ["stopped", "stopped"]


@pytest.mark.long
def test_services_end_when_up_is_killed(up: Up) -> None:
    code, _ = up.end(signal.SIGKILL)
    assert code == -signal.SIGKILL
    until(lambda: up.running() == [], "the end of all services", state=up.running)
    assert not any(is_open_at(service["address"]) for service in up.services)


@pytest.mark.long
def test_service_that_dies_ends_up_with_its_log_quoted(up: Up) -> None:
    kafka = up.services[1]
    os.kill(kafka["pid"], signal.SIGKILL)
    _, words = up.process.communicate(timeout=600)
    assert up.process.returncode == 1
    assert f"kafka ended by itself. Its log is {kafka['log']}, which ends:" in words
    assert up.running() == []
