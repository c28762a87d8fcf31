"""Pages that look into Kafka and into sinks when somebody opens them: hosts, dead letters, last changes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from tailrace_common.secrets import redact
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_server.api.shared import Shared
from tailrace_server.meta.keys import Role
from tailrace_server.web.access import form_of
from tailrace_server.web.changes import Changes
from tailrace_server.web.changing import operator
from tailrace_server.web.hosts import HostSource
from tailrace_server.web.letters import LetterBoxes
from tailrace_server.web.reading import ONE
from tailrace_server.web.rendering import Renderer, path_of, redirect
from tailrace_server.web.site import Site

Form = Annotated[dict[str, str], Depends(form_of)]


def routes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    """Add them."""
    _hosts(app, site, renderer)
    _letters(app, site, renderer)
    _changes(app, site, renderer)


def _hosts(app: FastAPI, site: Site, renderer: Renderer) -> None:
    shared = Shared(lambda: HostSource(site.settings).read(site.clock()))

    @app.get("/hosts")
    def hosts(request: Request) -> Response:
        visitor = site.doors.admitted(request, Role.READ)
        try:
            rows, problem = shared.get(), ""
        except ServiceError as error:
            rows, problem = [], redact(str(error))
        return renderer.page(request, visitor, "hosts.html", hosts=rows, problem=problem)


def _letters(app: FastAPI, site: Site, renderer: Renderer) -> None:
    boxes = LetterBoxes(site.settings, site.subscriptions)

    @app.get(f"{ONE}/letters")
    def letters(request: Request, table: str, name: str, taken: int = -1, again: int = 0, left: int = 0) -> Response:
        visitor, operations = operator(site, request)
        answer = operations.details(f"{table}/{name}")
        problem, read = "", None
        try:
            read = boxes.read(site.subscriptions.get(answer["id"]))
        except (ServiceError, SettingsError) as error:
            problem = redact(str(error))
        counts = None if taken < 0 else (taken, again, left)
        values: dict[str, Any] = {"answer": answer, "read": read, "problem": problem, "counts": counts}
        return renderer.page(request, visitor, "letters.html", **values)

    @app.post(f"{ONE}/letters/replay")
    def replay(request: Request, table: str, name: str, form: Form) -> Response:
        _, operations = operator(site, request, form)
        answer = operations.details(f"{table}/{name}")
        counts = boxes.replay(site.subscriptions.get(answer["id"]))
        figures = f"taken={counts.taken}&again={counts.again}&left={counts.left}"
        return redirect(f"{path_of(answer['reference'])}/letters?{figures}")


def _changes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    changes = Changes(site.settings)

    @app.get(f"{ONE}/changes")
    def last(request: Request, table: str, name: str) -> Response:
        visitor, operations = operator(site, request)
        answer = operations.details(f"{table}/{name}")
        lines, problem = [], ""
        if site.settings.server.show_changes:
            try:
                lines = changes.of(site.subscriptions.get(answer["id"]))
            except (ServiceError, SettingsError) as error:
                problem = redact(str(error))
        values: dict[str, Any] = {
            "answer": answer,
            "lines": lines,
            "problem": problem,
            "shows": site.settings.server.show_changes,
        }
        return renderer.page(request, visitor, "changes.html", **values)
