"""The pages as a part of the server's application: signing in, errors for people, and what leads to each page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.staticfiles import StaticFiles

from tailrace_common.secrets import redact
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_server.api.access import PREFIX
from tailrace_server.api.app import STATUS
from tailrace_server.meta.history import History
from tailrace_server.meta.keys import digest_of
from tailrace_server.web import changing, editing, issuer, looking, reading
from tailrace_server.web.access import COOKIE, SignInError, form_of, require_token
from tailrace_server.web.guard import Guard
from tailrace_server.web.rendering import STATIC, THEME_COOKIE, THEMES, Renderer, local_path, redirect
from tailrace_server.web.site import Site

Form = Annotated[dict[str, str], Depends(form_of)]
_SAMPLING_SECONDS: Final = 5.0


def install(app: FastAPI, site: Site) -> None:
    """Serve the pages beside the HTTP API, and protect both from pages of other sites."""
    app.mount("/", pages(site))
    app.add_middleware(Guard, loopback_only=site.doors.keys is None)


@contextmanager
def sampling(history: History) -> Iterator[None]:
    """While inside, totals are kept for charts."""
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(_SAMPLING_SECONDS):
            try:
                history.take()
            except ServiceError:
                continue  # charts have a gap; whoever needs the meta database says so

    thread = threading.Thread(target=sample, name="history", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def pages(site: Site) -> FastAPI:
    """The application of the pages alone."""
    app = FastAPI(openapi_url=None)
    renderer = Renderer(site)
    app.mount("/static", StaticFiles(directory=STATIC))
    _signing(app, site, renderer)
    issuer.routes(app, site, renderer)
    editing.routes(app, site, renderer)  # before those with a name in the address
    reading.routes(app, site, renderer)
    changing.routes(app, site, renderer)
    looking.routes(app, site, renderer)
    _errors(app, site, renderer)
    return app


def _signing(app: FastAPI, site: Site, renderer: Renderer) -> None:
    @app.get("/")
    def start() -> Response:
        return redirect("/subscriptions")

    @app.get("/login")
    def login(request: Request, to: str = "") -> Response:
        return renderer.page(
            request, site.doors.visitor(request), "login.html", to=local_path(to), wrong=False, refused=""
        )

    @app.post("/login")
    def signed_in(request: Request, form: Form) -> Response:
        visitor, target = site.doors.visitor(request), local_path(form.get("to", ""))
        require_token(visitor, form)
        if site.doors.keys is None:
            return redirect(target)
        digest = digest_of(form.get("key", "").strip())
        if site.doors.keys.holder(digest) is None:
            site.doors.admit_stranger(request)
            return renderer.page(request, visitor, "login.html", 401, to=target, wrong=True, refused="")
        answer = redirect(target)
        renderer.set_cookie(request, answer, site.sessions.begin(digest))
        return answer

    @app.post("/logout")
    def signed_out(request: Request, form: Form) -> Response:
        visitor = site.doors.visitor(request)
        require_token(visitor, form)
        site.sessions.end(visitor.session)
        answer = redirect("/login")
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    @app.post("/theme")
    def theme(request: Request, form: Form) -> Response:
        require_token(site.doors.visitor(request), form)
        answer = redirect(local_path(form.get("to", "")))
        chosen = form.get("theme", THEMES[0])
        answer.set_cookie(THEME_COOKIE, chosen if chosen in THEMES else THEMES[0], 365 * 86_400, samesite="strict")
        return answer


def _errors(app: FastAPI, site: Site, renderer: Renderer) -> None:
    def shown(request: Request, status: int, words: str) -> Response:
        if request.url.path.startswith(f"{PREFIX}/"):
            return JSONResponse({"detail": words}, status)
        try:
            return renderer.page(request, site.doors.visitor(request), "error.html", status, code=status, words=words)
        except TailraceError as error:  # neither session nor caller can be looked up
            return Response(redact(str(error)), 503, media_type="text/plain")

    @app.exception_handler(SignInError)
    def sign_in(request: Request, _error: Exception) -> Response:
        if request.method != "GET":
            return shown(request, 401, "The session has ended. Sign in, and do it again.")
        query = f"?{request.url.query}" if request.url.query else ""
        return redirect(f"/login?to={local_path(request.url.path + query).replace('&', '%26')}")

    @app.exception_handler(TailraceError)
    def refused(request: Request, error: Exception) -> Response:
        status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
        return shown(request, status, redact(str(error)))

    @app.exception_handler(StarletteHTTPException)
    def refused_request(request: Request, error: Exception) -> Response:
        refusal = error if isinstance(error, StarletteHTTPException) else HTTPException(500)
        answer = shown(request, refusal.status_code, str(refusal.detail))
        answer.headers.update(refusal.headers or {})
        return answer
