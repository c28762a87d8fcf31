"""The pages of subscriptions: all, one, and the audit; and what pauses, resets and cancels one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response

from tailrace_server.meta.credentials import Role
from tailrace_server.model.subscription import RefusedRequestError
from tailrace_server.operations.answers import Answer
from tailrace_server.operations.asking import takes_snapshots
from tailrace_server.operations.operations import Operations
from tailrace_server.web.access import Form, Site, Visitor, require_token
from tailrace_server.web.rendering import Renderer, View, counts, matching, path_of, redirect, setting_lines

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
        return renderer.page(
            request,
            visitor,
            "subscriptions.html",
            views=[View(answer) for answer in chosen],
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
        view = View(operations.details(f"{table}/{name}"))
        return renderer.page(request, visitor, "subscription.html", view=view, done=done)


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


def changing_routes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    """Add them."""
    _pause(app, site)
    _reset(app, site, renderer)
    _cancel(app, site, renderer)


def operator(site: Site, request: Request, form: Mapping[str, str] | None = None) -> tuple[Visitor, Operations]:
    """Whoever may change subscriptions, and the operations in that name; of a form also its token is looked at."""
    visitor = site.doors.admitted(request, Role.OPERATE)
    if form is not None:
        require_token(visitor, form)
    return visitor, site.operations(visitor.caller.name if visitor.caller else "")


def _pause(app: FastAPI, site: Site) -> None:
    @app.post(f"{ONE}/pause")
    def pause(request: Request, table: str, name: str, form: Form) -> Response:
        _, operations = operator(site, request, form)
        answer = operations.pause(f"{table}/{name}")
        return redirect(f"{path_of(answer['reference'])}?done=paused")

    @app.post(f"{ONE}/resume")
    def resume(request: Request, table: str, name: str, form: Form) -> Response:
        _, operations = operator(site, request, form)
        answer = operations.resume(f"{table}/{name}")
        return redirect(f"{path_of(answer['reference'])}?done=resumed")


def _reset(app: FastAPI, site: Site, renderer: Renderer) -> None:
    def page(request: Request, visitor: Visitor, answer: Answer, form: Mapping[str, str], problem: str) -> Response:
        values: dict[str, Any] = {
            "answer": answer,
            "start": form.get("start", "earliest"),
            "time": form.get("time", ""),
            "snapshot": form.get("snapshot") == "on",
            "snapshots_can": takes_snapshots(answer["sink"]),
            "problem": problem,
        }
        return renderer.page(request, visitor, "reset.html", 422 if problem else 200, **values)

    @app.get(f"{ONE}/reset")
    def ask(request: Request, table: str, name: str) -> Response:
        visitor, operations = operator(site, request)
        return page(request, visitor, operations.details(f"{table}/{name}"), {}, "")

    @app.post(f"{ONE}/reset")
    def reset(request: Request, table: str, name: str, form: Form) -> Response:
        visitor, operations = operator(site, request, form)
        answer, snapshot = operations.details(f"{table}/{name}"), form.get("snapshot") == "on"
        start = form.get("start", "earliest")
        try:
            if start == "stay" and not snapshot:
                raise RefusedRequestError("where it is: goes with the rows of the tables alone; choose these too")
            beginning = {"stay": None, "time": form.get("time", "").strip()}.get(start, start)
            operations.reset(answer["reference"], beginning, snapshot=snapshot)
        except RefusedRequestError as error:
            return page(request, visitor, answer, form, str(error))
        return redirect(f"{path_of(answer['reference'])}?done=reset")


def _cancel(app: FastAPI, site: Site, renderer: Renderer) -> None:
    @app.get(f"{ONE}/cancel")
    def ask(request: Request, table: str, name: str) -> Response:
        visitor, operations = operator(site, request)
        answer = operations.details(f"{table}/{name}")
        return renderer.page(request, visitor, "cancel.html", answer=answer)

    @app.post(f"{ONE}/cancel")
    def cancel(request: Request, table: str, name: str, form: Form) -> Response:
        _, operations = operator(site, request, form)
        operations.cancel(f"{table}/{name}")
        return redirect("/subscriptions")
