"""Subscriptions as pages show them: answers of the operations, with a stage in a word and charts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from tailrace_server.meta.history import KEPT_MS, Sample
from tailrace_server.model.subscription import NEVER
from tailrace_server.operations.answers import Answer, waits_for_its_table

_MARKS: Final = {"active": "●", "paused": "‖", "failing": "▲", "cancelled": "○", "done": "✓"}
WIDTH: Final = 120
HEIGHT: Final = 28
_MARGIN: Final = 2.0
_MOST_SECONDS: Final = 120.0

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class View:
    """One subscription: its answer, what it does at this moment, and its last hour."""

    answer: Answer
    stage: str
    lag: Chart
    rate: Chart

    @property
    def existing_rows(self) -> str:
        """What becomes of the rows that its tables have."""
        percent = self.answer["snapshot_percent"]
        share = "" if percent is None else f", {percent:g} %"
        if self.answer["stage"] == "snapshot":
            return f"copying{share}" if share else "to be copied"
        if percent is None:
            return "not copied" if self.answer["snapshot"] == NEVER else "none to copy"
        return "copied" if percent == 100 else f"copied in part{share}"

    @property
    def mark(self) -> str:
        """A sign for its state, for those who see no colours."""
        return _MARKS.get(self.answer["state"], "●")


def view_of(answer: Answer, samples: Sequence[Sample]) -> View:
    """One of them."""
    return View(answer, stage_of(answer), lag_chart(samples, KEPT_MS), rate_chart(samples, KEPT_MS))


def stage_of(answer: Answer) -> str:
    """What it does, beyond its state."""
    state, lag = answer["state"], answer["behind"]
    if state == "active" and answer["owner"] is None:
        return "waits for a worker"
    if waits_for_its_table(answer):
        return "waits for its table"
    if state == "active" and lag is None and answer["stage"] != "snapshot":
        return "starting"
    if state == "active" and answer["stage"] == "snapshot":
        percent = answer["snapshot_percent"]
        return "snapshot" if percent is None else f"snapshot, {percent:g} %"
    if state == "active":
        return "follows the log" if lag == 0 else "catching up"
    return {"failing": "will try again", "paused": "stands still", "done": "has ended"}.get(state, "ended")


def matching(answers: Sequence[Answer], text: str, state: str) -> list[Answer]:
    """Those whose reference, target or reason has all words of `text`, in a state; an empty one means any.

    What fails comes first.
    """
    words = text.lower().split()
    chosen = [answer for answer in answers if state in ("", answer["state"]) and _has(answer, words)]
    return sorted(chosen, key=lambda answer: answer["state"] != "failing")


def _has(answer: Answer, words: Sequence[str]) -> bool:
    hay = " ".join(str(answer[name]) for name in ("reference", "target", "sink", "reason")).lower()
    return all(word in hay for word in words)


def counts(answers: Sequence[Answer]) -> dict[str, int]:
    """How many there are of each state that somebody is in."""
    totals: dict[str, int] = {}
    for answer in answers:
        totals[answer["state"]] = totals.get(answer["state"], 0) + 1
    return totals


def setting_lines(settings: dict[str, Any]) -> list[tuple[str, str]]:
    """Settings as names with dots and their values."""
    lines: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, dict):
            lines += [(f"{name}.{below}", text) for below, text in setting_lines(value)]
        else:
            lines.append((name, str(value)))
    return lines


@dataclass(frozen=True, slots=True)
class Chart:
    """A line over the last hour, as the `d` of SVG paths; `last` is its newest value, `words` what a reader hears."""

    line: str
    area: str
    last: float | None
    words: str


def lag_chart(samples: Sequence[Sample], span: int) -> Chart:
    """Records behind, over the last `span` milliseconds."""
    lags = [(sample.taken, None if sample.behind is None else float(sample.behind)) for sample in samples]
    return _chart(lags, span, "records")


def rate_chart(samples: Sequence[Sample], span: int) -> Chart:
    """Records that came into the sink in a second."""
    return _chart(rates(samples), span, "records a second")


def rates(samples: Sequence[Sample]) -> list[tuple[int, float | None]]:
    """Between each two samples, at the time of the later one.

    Nothing is known where partitions came or went, where a reset went back, and over a gap.
    """
    collected: list[tuple[int, float | None]] = []
    for earlier, later in pairwise(samples):
        seconds = (later.taken - earlier.taken) / 1000
        records = later.reached - earlier.reached
        comparable = later.partitions == earlier.partitions and records >= 0 and 0 < seconds <= _MOST_SECONDS
        collected.append((later.taken, records / seconds if comparable else None))
    return collected


def _chart(values: Sequence[tuple[int, float | None]], span: int, unit: str) -> Chart:
    numbers = [value for _, value in values if value is not None]
    if not numbers:
        return Chart("", "", None, "no figures yet")
    top, end = max(numbers) or 1.0, values[-1][0]
    line, area = "", ""
    for run in _runs(values):
        points = [(_across(time, end, span), _down(value, top)) for time, value in run]
        steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        base = HEIGHT - _MARGIN
        line += f"M{steps}" if len(points) > 1 else f"M{steps}h1"
        area += f"M{points[0][0]:.1f} {base:.1f}L{steps}L{points[-1][0]:.1f} {base:.1f}Z"
    last = values[-1][1]
    now = "unknown" if last is None else number_words(last)
    return Chart(line, area, last, f"now {now}, at most {number_words(max(numbers))} {unit} in the last hour")


def _runs(values: Sequence[tuple[int, float | None]]) -> list[list[tuple[int, float]]]:
    """Parts without a gap."""
    runs: list[list[tuple[int, float]]] = [[]]
    for time, value in values:
        if value is None:
            runs.append([])
        else:
            runs[-1].append((time, value))
    return [run for run in runs if run]


def _across(time: int, end: int, span: int) -> float:
    share = max(0.0, 1 - (end - time) / span)
    return _MARGIN + share * (WIDTH - 2 * _MARGIN)


def _down(value: float, top: float) -> float:
    return HEIGHT - _MARGIN - value / top * (HEIGHT - 2 * _MARGIN)


def number_words(value: float | None) -> str:
    """A number for a narrow column: 950, 1.2 k, 3.4 M."""
    if value is None:
        return "–"  # noqa: RUF001 - a dash, for people
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if sign == 'k' else size):.1f} {sign}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
