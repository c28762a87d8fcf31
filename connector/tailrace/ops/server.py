"""What the agent answers over HTTP: its health for probes, its numbers for Prometheus, its status for people."""

from __future__ import annotations

import json
from functools import partial
from http import HTTPStatus
from typing import Final

from tailrace.ops.health import HealthBoard
from tailrace.ops.metrics import CONTENT_TYPE, exposition
from tailrace.ops.page import page
from tailrace_common.http_server import Answer, WebServer

PATHS: Final = ("/", "/health/live", "/health/ready", "/status", "/metrics")
_JSON: Final = "application/json"


class HealthServer(WebServer):
    """Serves a board at an address, from a thread of its own. Raises SettingsError when the address is taken."""

    def __init__(self, board: HealthBoard, address: str, port: int) -> None:
        super().__init__(partial(_answer, board), address, port, setting="agent.health_address")


def _answer(board: HealthBoard, path: str, accepts: str) -> Answer:
    health, now = board.now, board.seconds()
    match path:
        case "/health/live":
            live = health.live(now)
            return Answer(HTTPStatus.OK if live else HTTPStatus.SERVICE_UNAVAILABLE, _JSON, _json({"live": live}))
        case "/health/ready":
            ready = health.ready and health.live(now)
            return Answer(HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, _JSON, _json({"ready": ready}))
        case "/metrics":
            return Answer(HTTPStatus.OK, CONTENT_TYPE, exposition(health, now))
        case "/":
            return page(health, now).answer(accepts)
        case "/status" if "text/html" in accepts:  # a browser
            return page(health, now).answer(accepts)
        case "/status":
            return Answer(HTTPStatus.OK, _JSON, _json(health.as_json(now)))
        case _:
            return Answer(HTTPStatus.NOT_FOUND, _JSON, _json({"error": f"paths: {', '.join(PATHS)}"}))


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode()
