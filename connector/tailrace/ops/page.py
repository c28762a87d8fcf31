"""The agent's status as one page for people."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from html import escape

from tailrace.ops.health import Health
from tailrace.ops.ring_picture import ring_svg
from tailrace_schemas.generations import PublishedGeneration

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{text-align:left;padding:.2rem 1rem .2rem 0;"
    "border-bottom:1px solid #ddd;vertical-align:top;font-variant-numeric:tabular-nums}"
    ".good{color:#176b2c}.bad{color:#a01818}svg{width:100%;height:auto}"
)


def page(health: Health, now: float) -> str:
    """HTML without scripts or anything from elsewhere; it asks for itself again every five seconds."""
    good = health.live(now) and health.ready and not health.degraded
    words = "publishing" if good else "publishing, with problems" if health.ready else "not publishing"
    at = health.committed
    place = "nothing yet" if at is None else f"segment {at.segment}, offset {at.offset} (log epoch {at.epoch})"
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>",
        f"<title>Tailrace: {words}</title><style>{_STYLE}</style>",
        f"<h1 class={'good' if good else 'bad'}>{words}</h1>",
    ]
    if health.degraded:
        parts += ["<h2>Problems</h2>", _table(health.degraded.items())]
    uptime = timedelta(seconds=round(now - health.started))
    parts += ["<h2>Agent</h2>", _table([*health.about.items(), ("uptime", str(uptime))])]
    facts = [
        ("in Kafka up to", place),
        ("last read everything", f"{health.behind(now):.1f} s ago"),
        ("run loop", "moving" if health.live(now) else "stuck"),
        *([("cdc_raw", str(health.headroom))] if health.headroom is not None else []),
        *([("ring", str(health.ring))] if health.ring is not None else []),
        *((name, f"{number:,}") for name, number in sorted(health.counts.items())),
    ]
    parts += ["<h2>Progress</h2>", _table(facts)]
    if health.published:
        rows = ((topic, _topic(health, topic, number)) for topic, number in sorted(health.published.items()))
        parts += ["<h2>Changes since the start, by topic</h2>", _table(rows)]
    if health.generation is not None:
        parts += ["<h2>The ring</h2>", _picture(health.generation)]
    parts.append("<p>The same for programs: /status as JSON, /metrics, /health/live, /health/ready.</p></html>")
    return "\n".join(parts)


@lru_cache(maxsize=1)
def _picture(published: PublishedGeneration) -> str:
    """Drawn once: a large ring takes seconds."""
    proposal = published.unpack()
    return ring_svg(proposal.ring, proposal.generation)


def _topic(health: Health, topic: str, number: int) -> str:
    lag = health.lags.get(topic)
    return f"{number:,}" + ("" if lag is None else f", the last one {lag:.1f} s after it was written")


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><th>{escape(name)}<td>{escape(value)}" for name, value in rows) + "</table>"
