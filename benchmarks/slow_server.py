"""An HTTP server on loopback that takes each request, and answers one byte a second."""

from __future__ import annotations

import threading
from contextlib import suppress
from socketserver import StreamRequestHandler, ThreadingTCPServer
from types import TracebackType
from typing import Final, Self

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class SlowServer:
    """Answers while it is entered; each connection has a thread."""

    def __init__(self, seconds: float = 1.0, *, reachable: bool = False) -> None:
        """`seconds` are those of a byte; `reachable`: OPTIONS are answered at once, by which sinks see who is there."""
        self._over = threading.Event()
        self.requests = 0
        """That have come whole."""
        self.sent = 0
        """Bytes of answers."""
        slow = self

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):
                    while method := _taken(self):
                        slow.requests += 1
                        slow._answer(self, 0.0 if reachable and method == b"OPTIONS" else seconds)

        self._server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="slow server")

    @property
    def address(self) -> str:
        """http://HOST:PORT."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, handler: StreamRequestHandler, seconds: float) -> None:
        for byte in _ANSWER:
            if self._over.wait(seconds):
                raise ConnectionAbortedError
            handler.wfile.write(bytes([byte]))
            self.sent += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _taken(handler: StreamRequestHandler) -> bytes | None:
    """The method of a request, which is read with its body; None where none came whole."""
    length = 0
    line = handler.rfile.readline()
    method = line.partition(b" ")[0]
    while line.strip():
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
        line = handler.rfile.readline()
    return method if method and len(handler.rfile.read(length)) == length else None
