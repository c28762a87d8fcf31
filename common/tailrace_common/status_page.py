"""The status of a program for people: one page of HTML, and a summary in plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Final

from tailrace_common.http_server import Answer

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{text-align:left;padding:.2rem 1rem .2rem 0;"
    "border-bottom:1px solid #ddd;vertical-align:top;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}"
    "th{min-width:9rem}.good{color:#176b2c}.bad{color:#a01818}"
)
_OTHERS: Final = "For programs: /status as JSON, /metrics for Prometheus, /health/live and /health/ready for probes."

Rows = Sequence[tuple[str, str]]
"""Names and values."""


@dataclass(frozen=True, slots=True)
class StatusPage:
    """The state in a few words, whether it is good, and rows under headings."""

    state: str
    good: bool
    sections: Sequence[tuple[str, Rows]]

    def text(self) -> str:
        """For terminals."""
        lines = [self.state]
        for heading, rows in self.sections:
            width = max(len(name) for name, _ in rows)
            lines += ["", heading, *(f"  {name:{width}}  {value}" for name, value in rows)]
        return "\n".join([*lines, "", _OTHERS, ""])

    def html(self) -> str:
        """HTML without scripts or anything from elsewhere; it asks for itself again every five seconds."""
        state = escape(self.state)
        parts = [
            "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>",
            f"<title>Tailrace: {state}</title><style>{_STYLE}</style>",
            f"<h1 class={'good' if self.good else 'bad'}>{state}</h1>",
        ]
        for heading, rows in self.sections:
            parts += [f"<h2>{escape(heading)}</h2>", _table(rows)]
        return "\n".join([*parts, f"<p>{_OTHERS}</p></html>"])

    def answer(self, accepts: str) -> Answer:
        """HTML for a browser, by what the request accepts; plain text for others."""
        if "text/html" in accepts:
            return Answer(HTTPStatus.OK, "text/html; charset=utf-8", self.html().encode())
        return Answer(HTTPStatus.OK, "text/plain; charset=utf-8", self.text().encode())


def _table(rows: Rows) -> str:
    return "<table>" + "".join(f"<tr><th>{escape(name)}<td>{escape(value)}" for name, value in rows) + "</table>"
