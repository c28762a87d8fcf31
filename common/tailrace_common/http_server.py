"""A small HTTP server that answers GET from a thread of its own: for probes, for Prometheus, and for people.

Its connections are bounded, and so are its threads and file descriptors: the process needs these for its own files,
whatever clients do. Where all are taken the oldest one is closed, so that a probe is always answered.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tailrace_common.closing import Closing
from tailrace_schemas.errors import SettingsError

_LOG: Final = logging.getLogger("tailrace_common.http_server")
MOST_CONNECTIONS: Final = 16
REQUEST_SECONDS: Final = 5.0
"""How long a connection may be silent while its request is read, or its answer written."""
# A thread whose connection is closed ends at once, unless it is making an answer: then a new connection waits so long.
_SLOT_SECONDS: Final = 1.0
# Where accepting fails, as another part of the process has taken all descriptors, it would fail at once again.
_REFUSED_SECONDS: Final = 0.1
_BACKLOG: Final = 128
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{text-align:left;padding:.2rem 1rem .2rem 0;"
    "border-bottom:1px solid #ddd;vertical-align:top;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}"
    "th{min-width:9rem}.good{color:#176b2c}.bad{color:#a01818}"
)
_OTHERS: Final = "For programs: /status as JSON, /metrics for Prometheus, /health/live and /health/ready for probes."

Rows = Sequence[tuple[str, str]]
"""Names and values."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets."""

    status: HTTPStatus
    content_type: str
    content: bytes


Respond = Callable[[str, str], Answer]
"""From a path, without its query, and what the request accepts (its header Accept); any thread may call it."""


class PortTakenError(SettingsError):
    """Another process listens on that port."""


class WebServer(Closing):
    """Listens at an address until it is closed.

    Raises PortTakenError when the port is taken, SettingsError when it cannot listen there for another reason.
    """

    def __init__(
        self, respond: Respond, address: str, port: int, *, setting: str, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        """`setting` has the address, for the error. A client may be silent for `request_seconds`."""
        try:
            self._server = _Server((address, port), _handler(respond, request_seconds))
        except OSError as error:
            problem = f"{setting}: cannot listen on {address}, port {port}: {error.strerror}"
            if error.errno == errno.EADDRINUSE:
                raise PortTakenError(problem) from error
            raise SettingsError(problem) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name=setting, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on; a free one for port 0."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """At most MOST_CONNECTIONS at a time, a thread each."""

    daemon_threads = True
    request_queue_size = _BACKLOG

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._slots = threading.Semaphore(MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}  # by number, the oldest first
        self._ended = threading.Event()
        super().__init__(address, handler)

    def get_request(self) -> tuple[Any, Any]:
        """The next connection. Raises OSError where there is none to be had."""
        try:
            return super().get_request()
        except OSError as error:
            if not self._ended.is_set():
                _LOG.debug("a connection could not be accepted: %s", error)
                self._ended.wait(_REFUSED_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, once there is room."""
        if not self._slots.acquire(blocking=False):
            self._cut_oldest()
            if not self._slots.acquire(timeout=_SLOT_SECONDS):
                self.shutdown_request(request)
                return
        with self._lock:
            self._connections[id(request)] = request
        try:
            super().process_request(request, client_address)
        except Exception:  # no thread could be started
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer it, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or was too slow, is no event."""
        del request
        _LOG.debug("no answer to %s", client_address, exc_info=True)

    def shutdown(self) -> None:
        """Accept no more connections. `serve_forever` looks for that twice a second, unless something wakes it."""
        self._ended.set()
        with suppress(OSError):  # where a listening socket cannot be shut down, it is not woken
            self.socket.shutdown(socket.SHUT_RDWR)
        super().shutdown()

    def server_close(self) -> None:
        """End every connection too."""
        with self._lock:
            for connection in self._connections.values():
                _cut(connection)
        super().server_close()

    def _cut_oldest(self) -> None:
        with self._lock:
            oldest = next(iter(self._connections), None)
            if oldest is not None:
                _cut(self._connections.pop(oldest))

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            self._connections.pop(id(request), None)
        self._slots.release()


def _cut(connection: socket.socket) -> None:
    """Whoever reads from it, or writes to it, fails at once."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(listen: Callable[[int], WebServer], port: int, default: int) -> Iterator[None]:
    """While inside, the server that `listen` makes answers at `port`; none for port 0.

    A default port that is taken, as by a second process on a machine, is logged and done without. Raises SettingsError
    for every other address or port on which it cannot listen.
    """
    try:
        server = listen(port) if port else None
    except PortTakenError as error:
        if port != default:
            raise
        _LOG.warning("%s. This process serves no health and no metrics; set another port", error)
        server = None
    try:
        yield
    finally:
        if server is not None:
            server.close()


def _handler(respond: Respond, request_seconds: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = request_seconds

        def do_GET(self) -> None:
            answer = respond(self.path.partition("?")[0], self.headers.get("Accept", ""))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:
            """Probes are no events."""

    return Handler


@dataclass(frozen=True, slots=True)
class StatusPage:
    """The state in a few words, whether it is good, and rows under headings."""

    state: str
    good: bool
    sections: Sequence[tuple[str, Rows]]

    def text(self) -> str:
        """For terminals."""
        lines = [self.state]
        for heading, rows in self.sections:
            width = max(len(name) for name, _ in rows)
            lines += ["", heading, *(f"  {name:{width}}  {value}" for name, value in rows)]
        return "\n".join([*lines, "", _OTHERS, ""])

    def html(self) -> str:
        """HTML without scripts or anything from elsewhere; it asks for itself again every five seconds."""
        state = escape(self.state)
        parts = [
            "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>",
            f"<title>Tailrace: {state}</title><style>{_STYLE}</style>",
            f"<h1 class={'good' if self.good else 'bad'}>{state}</h1>",
        ]
        for heading, rows in self.sections:
            parts += [f"<h2>{escape(heading)}</h2>", _table(rows)]
        return "\n".join([*parts, f"<p>{_OTHERS}</p></html>"])

    def answer(self, accepts: str) -> Answer:
        """HTML for a browser, by what the request accepts; plain text for others."""
        if "text/html" in accepts:
            return Answer(HTTPStatus.OK, "text/html; charset=utf-8", self.html().encode())
        return Answer(HTTPStatus.OK, "text/plain; charset=utf-8", self.text().encode())


def _table(rows: Rows) -> str:
    return "<table>" + "".join(f"<tr><th>{escape(name)}<td>{escape(value)}" for name, value in rows) + "</table>"
