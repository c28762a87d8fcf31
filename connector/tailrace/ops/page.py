"""The agent's status for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tailrace.ops.health import Health
from tailrace_common.status_page import Rows, StatusPage


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
