"""Subscriptions as pages show them: answers of the operations, with a stage in a word. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailrace_server.model.subscription import NEVER
from tailrace_server.operations.answers import Answer, waits_for_its_table

_MARKS: Final = {"active": "●", "paused": "‖", "failing": "▲", "cancelled": "○", "done": "✓"}


@dataclass(frozen=True, slots=True)
class View:
    """One subscription: its answer, and what it does at this moment."""

    answer: Answer

    @property
    def stage(self) -> str:
        """What it does, beyond its state."""
        state, lag, percent = self.answer["state"], self.answer["behind"], self.answer["snapshot_percent"]
        if state != "active":
            return {"failing": "will try again", "paused": "stands still", "done": "has ended"}.get(state, "ended")
        if self.answer["owner"] is None:
            return "waits for a worker"
        if waits_for_its_table(self.answer):
            return "waits for its table"
        if self.answer["stage"] == "snapshot":
            return "snapshot" if percent is None else f"snapshot, {percent:g} %"
        if lag is None:
            return "starting"
        return "follows the log" if lag == 0 else "catching up"

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


def number_words(value: float | None) -> str:
    """A number for a narrow column: 950, 1.2 k, 3.4 M."""
    if value is None:
        return "–"  # noqa: RUF001 - a dash, for people
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if sign == 'k' else size):.1f} {sign}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
