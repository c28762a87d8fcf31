"""What the agent answers over HTTP: its health for probes, its numbers for Prometheus, its status for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Final

from tailrace.ops.health import Health, HealthBoard
from tailrace.ops.metrics import CONTENT_TYPE, exposition
from tailrace_common.http_server import Answer, Rows, StatusPage, WebServer

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


def page(health: Health, now: float) -> StatusPage:
    """What it shows at this moment."""
    return StatusPage(_state(health, now), _is_good(health, now), list(_sections(health, now)))


def _is_good(health: Health, now: float) -> bool:
    return health.live(now) and health.ready and not health.degraded


def _state(health: Health, now: float) -> str:
    if _is_good(health, now):
        return "publishing"
    return "publishing, with problems" if health.ready else "not publishing"


def _sections(health: Health, now: float) -> Iterator[tuple[str, Rows]]:
    if health.degraded:
        yield "Problems", list(health.degraded.items())
    uptime = timedelta(seconds=round(now - health.started))
    yield "Agent", [*health.about.items(), ("uptime", str(uptime))]
    position = health.committed
    published = "nothing yet"
    if position is not None:
        published = f"segment {position.segment}, offset {position.offset} (log epoch {position.epoch})"
    yield (
        "Progress",
        [
            ("published up to", published),
            ("last caught up", f"{health.behind(now):.1f} s ago"),
            ("run loop", "moving" if health.live(now) else "stuck"),
            *([("cdc_raw", str(health.headroom))] if health.headroom is not None else []),
            *([("ring", str(health.ring))] if health.ring is not None else []),
            *((name, f"{count:,}") for name, count in sorted(health.counts.items())),
        ],
    )
    if health.published:
        topics = sorted(health.published.items())
        yield "Changes since the start, by topic", [(topic, _topic(health, topic, count)) for topic, count in topics]


def _topic(health: Health, topic: str, count: int) -> str:
    lag = health.lags.get(topic)
    return f"{count:,}" + ("" if lag is None else f"; the latest was published {lag:.1f} s after its write")
