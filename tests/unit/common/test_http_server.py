"""A web server that clients cannot starve: connections, threads and descriptors are bounded, and probes answered."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from http.server import ThreadingHTTPServer

import pytest

from tailrace_common.http_server import MOST_CONNECTIONS, Answer, WebServer, serving
from tailrace_schemas.errors import SettingsError

IDLE = 1100
DESCRIPTORS = 256
FILES = 200
# A server beside something that needs descriptors of its own, when it is told to: as capture does. No time passes for
# it: after a minute without a sign of life the probe's answer would be 503, however busy the machine is.
CHILD = f"""
import resource, sys, tempfile
resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
from tailrace.ops.health import HealthBoard
from tailrace.ops.server import HealthServer
with HealthServer(HealthBoard(lambda: 0.0), "127.0.0.1", 0) as server:
    print(server.port, flush=True)
    sys.stdin.readline()
    files = [tempfile.TemporaryFile() for _ in range({FILES})]
    print("opened", len(files), flush=True)
    sys.stdin.readline()
"""


def answered(_path: str, _accepts: str) -> Answer:
    return Answer(HTTPStatus.OK, "text/plain", b"here")


@contextmanager
def descriptors(number: int) -> Iterator[None]:
    """So many descriptors for this process, at least."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < number:
        pytest.skip(f"the system allows {hard} file descriptors, and {number} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, number), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def read(port: int, path: str = "/health/live") -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        status: int = answer.status
        return status


def test_its_end_does_not_wait_until_it_looks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks once an hour here."""
    serve = ThreadingHTTPServer.serve_forever
    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", lambda server: serve(server, 3600.0))
    server = WebServer(answered, "127.0.0.1", 0, setting="x")
    assert read(server.port) == HTTPStatus.OK
    closing = threading.Thread(target=server.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


@pytest.mark.promise("commands.health-endpoint")
@pytest.mark.slow
def test_idle_connections_take_no_descriptor_from_the_process() -> None:
    """1,100 of them, against a process that may have 256 descriptors: it opens its files, and answers its probe."""
    with (
        ExitStack() as stack,
        descriptors(IDLE + 200),
        subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child,
    ):
        stack.callback(child.kill)
        assert child.stdin is not None
        assert child.stdout is not None
        port = int(child.stdout.readline())
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
        assert read(port) == HTTPStatus.OK
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == f"opened {FILES}\n"


@pytest.mark.promise("commands.health-endpoint")
def test_the_oldest_connection_makes_room() -> None:
    """Connections and threads stay within the limit, and each request is answered."""
    with WebServer(answered, "127.0.0.1", 0, setting="s") as server, ExitStack() as stack:
        before = threading.active_count()
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            for _ in range(MOST_CONNECTIONS)
        ]
        assert read(server.port) == HTTPStatus.OK
        assert idle[0].recv(1) == b"", "the oldest is closed"
        assert threading.active_count() <= before + MOST_CONNECTIONS


@pytest.mark.promise("commands.health-endpoint")
def test_a_silent_connection_ends() -> None:
    """In the middle of a request, too."""
    with WebServer(answered, "127.0.0.1", 0, setting="s", request_seconds=0.05) as server:
        for sent in (b"", b"GET /x HTTP/1.0\r\nAccept: "):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                connection.sendall(sent)
                assert connection.recv(1) == b""


@pytest.mark.promise("commands.health-endpoint")
@pytest.mark.slow
def test_an_answer_that_takes_long_holds_up_no_other_for_good() -> None:
    """All connections wait for their answers: a new one gets none, later ones do."""
    over = threading.Event()
    begun = threading.Semaphore(0)

    def slow(path: str, _accepts: str) -> Answer:
        if path == "/slow":
            begun.release()
            assert over.wait(60)
        return answered(path, "")

    with WebServer(slow, "127.0.0.1", 0, setting="s") as server, ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            connection.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
            assert begun.acquire(timeout=60)
        turned_away = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        assert turned_away.recv(1) == b""
        over.set()
        assert read(server.port) == HTTPStatus.OK


@pytest.mark.promise("settings.default-port")
def test_a_default_port_that_is_taken_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    """A second agent or stream on a machine runs; a port that somebody chose has to be free."""

    def listen(port: int) -> WebServer:
        return WebServer(answered, "127.0.0.1", port, setting="agent.health_address")

    with listen(0) as first:
        with serving(listen, first.port, default=first.port):
            assert f"on 127.0.0.1, port {first.port}: Address already in use. This process serves no" in caplog.text
        with pytest.raises(SettingsError, match="Address already in use"), serving(listen, first.port, default=1):
            pass
        with serving(listen, 0, default=first.port):
            pass
        port = first.port
    with serving(listen, port, default=port), urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=60) as answer:
        assert answer.read() == b"here"


def test_an_address_that_is_not_this_machines_ends_the_process() -> None:
    """Only the default's port may be taken: an address that cannot be listened on is a wrong setting."""

    def listen(port: int) -> WebServer:
        return WebServer(answered, "192.0.2.1", port, setting="agent.health_address")

    message = r"agent\.health_address: cannot listen on 192\.0\.2\.1, port 8083: "
    with pytest.raises(SettingsError, match=message), serving(listen, 8083, default=8083):
        pass


def test_it_listens_on_ipv6() -> None:
    with (
        WebServer(answered, "::1", 0, setting="s") as server,
        urllib.request.urlopen(f"http://[::1]:{server.port}", timeout=60) as answer,
    ):
        assert answer.read() == b"here"
