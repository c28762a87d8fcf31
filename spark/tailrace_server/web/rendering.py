"""HTML of templates, which escape all that they are given, and the cookie of the session with it."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tailrace_common.durations import duration_words
from tailrace_server.meta.keys import Role
from tailrace_server.meta.sessions import Session
from tailrace_server.web.access import COOKIE, Site, Visitor
from tailrace_server.web.views import number_words

STATIC: Final = Path(__file__).with_name("static")
_NO_STORE: Final = {"Cache-Control": "no-store"}


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
