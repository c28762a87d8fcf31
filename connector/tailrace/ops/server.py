"""A small HTTP server of the agent's health: for probes, for Prometheus, and for people."""

from __future__ import annotations

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from tailrace.ops.health import HealthBoard
from tailrace.ops.metrics import CONTENT_TYPE, exposition
from tailrace.ops.page import page
from tailrace_common.closing import Closing
from tailrace_schemas.errors import SettingsError

PATHS: Final = ("/health/live", "/health/ready", "/status", "/metrics")
_JSON: Final = "application/json"


class HealthServer(Closing):
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


def _answer(board: HealthBoard, path: str, accepts: str) -> tuple[HTTPStatus, str, bytes]:
    """Status, content type and content."""
    health, now = board.now, board.seconds()
    match path.partition("?")[0]:
        case "/health/live":
            live = health.live(now)
            return (HTTPStatus.OK if live else HTTPStatus.SERVICE_UNAVAILABLE), _JSON, _json({"live": live})
        case "/health/ready":
            ready = health.ready and health.live(now)
            return (HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE), _JSON, _json({"ready": ready})
        case "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE, exposition(health, now)
        case "/" | "/status" if "text/html" in accepts:  # a browser
            return HTTPStatus.OK, "text/html; charset=utf-8", page(health, now).encode()
        case "/status":
            return HTTPStatus.OK, _JSON, _json(health.as_json(now))
        case _:
            return HTTPStatus.NOT_FOUND, _JSON, _json({"error": f"paths: {', '.join(PATHS)}"})


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode()


def _handler(board: HealthBoard) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, content_type, content = _answer(board, self.path, self.headers.get("Accept", ""))
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Probes are no events."""

    return Handler
