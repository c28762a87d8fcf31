"""The agent's status for people: one page of HTML, and a summary in plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from html import escape

from tailrace.ops.health import Health

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{text-align:left;padding:.2rem 1rem .2rem 0;"
    "border-bottom:1px solid #ddd;vertical-align:top;font-variant-numeric:tabular-nums}"
    ".good{color:#176b2c}.bad{color:#a01818}"
)
_OTHERS = "For programs: /status as JSON, /metrics for Prometheus, /health/live and /health/ready for probes."


Rows = list[tuple[str, str]]


def summary(health: Health, now: float) -> str:
    """Plain text for terminals: the state in one line, then names and values under headings."""
    lines = [_state(health, now)]
    for heading, rows in _sections(health, now):
        width = max(len(name) for name, _ in rows)
        lines += ["", heading, *(f"  {name:{width}}  {value}" for name, value in rows)]
    return "\n".join([*lines, "", _OTHERS, ""])


def page(health: Health, now: float) -> str:
    """HTML without scripts or anything from elsewhere; it asks for itself again every five seconds."""
    state, good = _state(health, now), _is_good(health, now)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>",
        f"<title>Tailrace: {state}</title><style>{_STYLE}</style>",
        f"<h1 class={'good' if good else 'bad'}>{state}</h1>",
    ]
    for heading, rows in _sections(health, now):
        parts += [f"<h2>{escape(heading)}</h2>", _table(rows)]
    parts.append(f"<p>{_OTHERS}</p></html>")
    return "\n".join(parts)


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


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><th>{escape(name)}<td>{escape(value)}" for name, value in rows) + "</table>"
