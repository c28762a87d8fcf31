"""A small HTTP server of the agent's health: /health/live, /health/ready, /status."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from tailrace.ops.health import HealthBoard
from tailrace_schemas.errors import SettingsError


class HealthServer:
    """Serves a board at an address, from a thread of its own. Raises SettingsError when the address is taken."""

    def __init__(self, board: HealthBoard, address: str, port: int) -> None:
        try:
            self._server = ThreadingHTTPServer((address, port), _handler(board))
        except OSError as error:
            raise SettingsError(f"agent.health_address {address}:{port}: {error.strerror}") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def _answer(board: HealthBoard, path: str) -> tuple[HTTPStatus, dict[str, object]]:
    health, now = board.now, board.seconds()
    status = health.as_json(now)
    match path:
        case "/health/live":
            return (HTTPStatus.OK if health.live(now) else HTTPStatus.SERVICE_UNAVAILABLE), {"live": status["live"]}
        case "/health/ready":
            ready = health.ready and health.live(now)
            return (HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE), {"ready": ready}
        case "/status":
            return HTTPStatus.OK, status
        case _:
            return HTTPStatus.NOT_FOUND, {"error": "paths: /health/live, /health/ready, /status"}


def _handler(board: HealthBoard) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = _answer(board, self.path)
            content = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Probes are no events."""

    return Handler
