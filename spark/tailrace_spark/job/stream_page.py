"""The stream's status for people, made of what /status has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from tailrace_common.http_server import Rows, StatusPage
from tailrace_common.lengths import length_words

Status = Mapping[str, Any]


def stream_page(status: Status, *, letters: str, ready: bool, now: float) -> StatusPage:
    """What it shows at this moment, in seconds since 1970. `letters` is the command that lists dead letters."""
    problems = list(_problems(status, letters))
    sections: list[tuple[str, Rows]] = [("Problems", problems), *_sections(status, now)]
    filled = [(heading, rows) for heading, rows in sections if rows]
    return StatusPage(_state(status, ready), ready and not problems, filled)


def _state(status: Status, ready: bool) -> str:
    if (blocked := status["blocked"]) is not None:
        return f"waiting for the {blocked['what']}"
    if not ready:
        return "starting"
    copying = any(snapshot["state"] == "reading" for snapshot in status["snapshots"])
    return "copying existing rows, and following" if copying else "following"


def _problems(status: Status, letters_command: str) -> Iterator[tuple[str, str]]:
    for trouble in (status["blocked"], status["snapshot_blocked"]):
        if trouble is not None:
            yield trouble["what"], f"{trouble['words']}. What to do: {trouble['action']}"
    yield from status["stopped"].items()
    yield from status["refused_tables"].items()
    if letters := status["counts"]["dead_letters"]:
        yield "dead letters", f"{letters:,} since the start; {letters_command} has the reasons"


def _sections(status: Status, now: float) -> Iterator[tuple[str, Rows]]:
    sink, lags = status["sink"], status["behind_records"] or {}
    yield "Sink", [(name, sink[name]) for name in ("name", "type", "location") if sink[name]]
    yield "Progress", list(_progress(status, now))
    yield "Existing rows", [(row["table"], _snapshot(row)) for row in status["snapshots"]]
    yield "Records since the start, by table", [(name, _table(row)) for name, row in status["tables"].items()]
    yield "Records behind, by topic", [(topic, f"{count:,}") for topic, count in lags.items()]


def _progress(status: Status, now: float) -> Iterator[tuple[str, str]]:
    lags, last = status["behind_records"], status["last_batch"]
    yield "records behind", "unknown" if lags is None else f"{sum(lags.values()):,}"
    if last is None:
        yield "last batch", "none yet"
    else:
        age = length_words(now - datetime.fromisoformat(last["at"]).timestamp())
        yield "last batch", f"{age} ago: {last['records']:,} records in {last['seconds']:.1f} s"
    for name, count in status["counts"].items():
        yield name.replace("_", " "), f"{count:,}"


def _table(row: Status) -> str:
    return f"{row['records']:,}; the newest was in the sink {length_words(row['lag_seconds'])} after its write"


def _snapshot(row: Status) -> str:
    words = f"{row['state']}, {row['percent']:g} %, {row['rows']:,} rows"
    if row["seconds_left"] is not None:
        words += f", {length_words(row['seconds_left'])} left"
    return f"{words}: {row['reason']}" if row["reason"] else words
