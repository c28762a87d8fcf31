"""HTML of templates, which escape all that they are given, and the cookie of the session with it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tailrace_common.durations import duration_words
from tailrace_server.meta.credentials import Role, Session
from tailrace_server.model.subscription import NEVER
from tailrace_server.operations.answers import Answer, waits_for_its_table
from tailrace_server.web.access import COOKIE, Site, Visitor

STATIC: Final = Path(__file__).with_name("static")
_NO_STORE: Final = {"Cache-Control": "no-store"}
_MARKS: Final = {"active": "●", "paused": "‖", "failing": "▲", "cancelled": "○", "done": "✓"}


class Renderer:
    """Makes answers of templates."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._templates = Environment(
            loader=FileSystemLoader(Path(__file__).with_name("templates")),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            path=path_of, number=number_words, since=since_words, seconds=duration_words, time=time_words
        )
        self._templates.globals.update(
            assets=_digest_of_files(),
            version=site.version,
            cluster=site.settings.topics.prefix,
            signs_in=site.doors.keys is not None,
            issuer=None if site.doors.sign_in is None else site.doors.sign_in.host,
        )

    def page(self, request: Request, visitor: Visitor, template: str, status: int = 200, **values: Any) -> Response:
        """A page for somebody, who gets a cookie with the first one."""
        text = self._templates.get_template(template).render(
            path=request.url.path,
            caller=visitor.caller,
            token=visitor.session.token,
            may_operate=visitor.may(Role.OPERATE),
            may_audit=visitor.may(Role.ADMIN),
            clock=self._site.clock(),
            now=datetime.fromtimestamp(self._site.clock(), UTC).strftime("%H:%M:%S"),
            **values,
        )
        answer = HTMLResponse(text, status, headers=_NO_STORE)
        if visitor.is_new:
            self.set_cookie(request, answer, visitor.session)
        return answer

    def set_cookie(self, request: Request, answer: Response, session: Session) -> None:
        """Give the browser a session."""
        answer.set_cookie(
            COOKIE, session.secret, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )


def redirect(path: str) -> Response:
    """To another page, behind a form."""
    return RedirectResponse(path, 303, headers=_NO_STORE)


def path_of(reference: str) -> str:
    """The address of a subscription's page."""
    table, _, name = reference.partition("/")
    return f"/subscriptions/{quote(table, safe='')}/{quote(name, safe='')}"


def local_path(path: str) -> str:
    """A path of this server; the first page instead of what leads elsewhere."""
    if path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable():
        return path
    return "/subscriptions"


def since_words(text: str, now: float) -> str:
    """How long ago an ISO time is."""
    return f"{duration_words(now - datetime.fromisoformat(text).timestamp())} ago"


def time_words(text: str) -> str:
    """An ISO time for people, in UTC: without a T, to the second."""
    return text[:19].replace("T", " ")


def _digest_of_files() -> str:
    """Changes with the files, so that browsers may keep them."""
    digest = hashlib.sha256()
    for file in sorted(STATIC.iterdir()):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


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
        if not self.answer["running"]:
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
