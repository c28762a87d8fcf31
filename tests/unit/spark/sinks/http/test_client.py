"""Endpoints whose answers have no end: their status counts, and nobody waits for the rest or keeps it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler

import pytest

from tailrace_spark.sinks.http.client import HttpSender, RefusedError
from tailrace_spark.sinks.http.settings import HttpSinkSettings
from tests.support.loopback_server import LoopbackServer

PAUSES = {"fast": 0.0, "slow": 0.01}
"""Seconds between two pieces of an answer."""


class Endless(BaseHTTPRequestHandler):
    """Answers by the status and the pause that the path has, for as long as somebody reads."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer()

    def do_OPTIONS(self) -> None:
        self.answer()

    def answer(self) -> None:
        _, pause, status = self.path.split("/")
        self.send_response(int(status))
        self.end_headers()
        with suppress(OSError):  # nobody reads any more
            while not threading.Event().wait(PAUSES[pause]):
                self.wfile.write(b"no " * (1 if PAUSES[pause] else 10_000))

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with LoopbackServer(Endless, "endless") as server:
        yield server.address


@pytest.mark.slow
@pytest.mark.parametrize("pause", PAUSES)
def test_an_answer_without_an_end_counts_by_its_status(address: str, pause: str) -> None:
    settings = HttpSinkSettings(url=address, timeout_seconds=1)
    with closing(HttpSender("there", settings)) as sender:
        sender.reach(f"{address}/{pause}/405")
        sender.send(f"{address}/{pause}/200", b"{}", "1")
        with pytest.raises(RefusedError, match=r"^HTTP 400: no no no"):
            sender.send(f"{address}/{pause}/400", b"{}", "2")
