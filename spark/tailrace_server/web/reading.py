"""The pages that only show: all subscriptions, one, and the audit."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response

from tailrace_server.meta.keys import Role
from tailrace_server.web.rendering import Renderer
from tailrace_server.web.site import Site
from tailrace_server.web.views import counts, matching, setting_lines, view_of

ONE: Final = "/subscriptions/{table}/{name}"
_AUDIT_ROWS: Final = 200


def routes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    """Add them."""
    _list(app, site, renderer)
    _one(app, site, renderer)
    _audit(app, site, renderer)


def _list(app: FastAPI, site: Site, renderer: Renderer) -> None:
    @app.get("/subscriptions")
    def list_(request: Request, q: str = "", state: str = "") -> Response:
        visitor = site.doors.admitted(request, Role.READ)
        operations = site.operations(visitor.caller.name if visitor.caller else "")
        answers = list(operations.all(cancelled=state == "cancelled"))
        chosen = matching(answers, q, state)
        history = site.history.of([answer["id"] for answer in chosen])
        return renderer.page(
            request,
            visitor,
            "subscriptions.html",
            views=[view_of(answer, history[answer["id"]]) for answer in chosen],
            total=len(answers),
            counts=counts(answers),
            q=q,
            state=state,
        )


def _one(app: FastAPI, site: Site, renderer: Renderer) -> None:
    @app.get(ONE)
    def details(request: Request, table: str, name: str, done: str = "") -> Response:
        visitor = site.doors.admitted(request, Role.READ)
        operations = site.operations(visitor.caller.name if visitor.caller else "")
        answer = operations.details(f"{table}/{name}")
        history = site.history.of([answer["id"]])[answer["id"]]
        return renderer.page(
            request,
            visitor,
            "subscription.html",
            view=view_of(answer, history),
            done=done,
        )


def _audit(app: FastAPI, site: Site, renderer: Renderer) -> None:
    @app.get("/audit")
    def audit(request: Request, reference: str = "", limit: Annotated[int, Query(ge=1, le=1000)] = 0) -> Response:
        visitor = site.doors.admitted(request, Role.ADMIN)
        operations = site.operations(visitor.caller.name if visitor.caller else "")
        rows = operations.audit(reference or None, limit or _AUDIT_ROWS)
        changes = [{**row, "lines": difference_lines(row["before"], row["after"])} for row in rows]
        return renderer.page(request, visitor, "audit.html", rows=changes, reference=reference)


def difference_lines(before: object, after: object) -> list[str]:
    """What a change made another, a line for each name."""
    old = dict(setting_lines(before)) if isinstance(before, dict) else {}
    new = dict(setting_lines(after)) if isinstance(after, dict) else {}
    if not old:
        return [f"{name}: {value}" for name, value in new.items() if value not in ("None", "")]
    return [
        f"{name}: {old.get(name, 'unset')} → {new.get(name, 'unset')}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
