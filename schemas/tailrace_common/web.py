"""A small HTTP server that answers GET from a thread of its own: for probes, for Prometheus, and for people."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tailrace_common.closing import Closing
from tailrace_schemas.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets."""

    status: HTTPStatus
    content_type: str
    content: bytes


Respond = Callable[[str, str], Answer]
"""From a path, without its query, and what the request accepts (its header Accept); any thread may call it."""


class WebServer(Closing):
    """Listens at an address until it is closed. Raises SettingsError when the address is taken."""

    def __init__(self, respond: Respond, address: str, port: int, *, setting: str) -> None:
        """`setting` is the one that says the address, for the error."""
        try:
            self._server = ThreadingHTTPServer((address, port), _handler(respond))
        except OSError as error:
            raise SettingsError(f"{setting} {address}:{port}: {error.strerror}") from error
        self._server.daemon_threads = True
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


def _handler(respond: Respond) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
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
