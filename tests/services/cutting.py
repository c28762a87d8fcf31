"""An HTTP proxy on loopback that dies at a chosen request which writes: the server has it, its client no answer."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import urlsplit

from tests.support.loopback_server import LoopbackServer

_PER_CONNECTION: Final = frozenset({"connection", "transfer-encoding", "content-length"})


class CuttingProxy(LoopbackServer):
    """Passes requests on to an endpoint until so many that write went through; every later one meets a dead server.

    The one at which it dies goes through and its answer does not. With `revives` the others go through again.
    `written` counts those that went through.

    That a request is lost need not be tried too: its client sees the same, of a server that has done less.
    """

    def __init__(self, endpoint: str, dies_after: int | None, *, revives: bool = False) -> None:
        self.written = 0
        self._target = urlsplit(endpoint)
        self._left = dies_after
        self._revives = revives
        self._lock = threading.Lock()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        super().__init__(Handler, "cutting proxy")
        self._server.daemon_threads = True

    @property
    def endpoint(self) -> str:
        """Its address, http://HOST:PORT."""
        return self.address

    def verdict(self, method: str) -> tuple[bool, bool]:
        """Whether a request goes through, and whether its answer does."""
        with self._lock:
            if self._left is None:
                return True, True
            if self._left < 0:
                return False, False
            if method not in ("PUT", "POST", "DELETE"):
                return True, True
            if self._left > 0:
                self._left -= 1
                self.written += 1
                return True, True
            self._left = None if self._revives else -1
            self.written += 1
            return True, False

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes]:
        """What the server answers: status, headers, body."""
        connection = HTTPConnection(self._target.hostname or "", self._target.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    owner: CuttingProxy
    protocol_version = "HTTP/1.1"

    def _pass(self) -> None:
        body = self._body()
        through, answered = self.owner.verdict(self.command)
        if through:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _PER_CONNECTION}
            status, answer_headers, content = self.owner.forward(self.command, self.path, headers, body)
        if not (through and answered):
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(2)
            return
        self.send_response_only(status)
        for name, value in answer_headers.items():
            if name.lower() not in _PER_CONNECTION:
                self.send_header(name, value)
        length = answer_headers.get("content-length") if self.command == "HEAD" else str(len(content))
        self.send_header("content-length", length or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        """The whole body: AWS's newer clients send it in chunks, whose trailer is inside of the body."""
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass  # a trailer of HTTP's own
        return b"".join(chunks)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
