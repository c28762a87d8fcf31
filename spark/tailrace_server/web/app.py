"""The pages as a part of the server's application: signing in, errors for people, and what leads to each page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.staticfiles import StaticFiles

from tailrace_common.secrets import redact
from tailrace_common.sections.section import is_loopback
from tailrace_common.sections.server import CALLBACK
from tailrace_schemas.errors import TailraceError
from tailrace_server.api.access import PREFIX
from tailrace_server.api.app import STATUS
from tailrace_server.meta.credentials import Subject, digest_of
from tailrace_server.oidc.sign_in import FLOW_SECONDS, Flow, RefusedSignInError, SignIn
from tailrace_server.web import editing, reading
from tailrace_server.web.access import COOKIE, Form, SignInError, Site, Visitor, require_token
from tailrace_server.web.rendering import STATIC, Renderer, local_path, redirect

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Scripts and styles are files of this server; nothing is inline, and nothing comes from elsewhere."""

_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_READING: Final = ("GET", "HEAD", "OPTIONS")
_OTHER_SITES: Final = ("cross-site", "same-site")
FLOW_COOKIE: Final = "tailrace_sign_in"
_PATH: Final = "/login"


def install(app: FastAPI, site: Site) -> None:
    """Serve the pages beside the HTTP API, and protect both from pages of other sites."""
    app.mount("/", pages(site))
    app.add_middleware(Guard, loopback_only=site.doors.keys is None)


def pages(site: Site) -> FastAPI:
    """The application of the pages alone."""
    app = FastAPI(openapi_url=None)
    renderer = Renderer(site)
    app.mount("/static", StaticFiles(directory=STATIC))
    _signing(app, site, renderer)
    _signing_by_issuer(app, site, renderer)
    editing.routes(app, site, renderer)  # before those with a name in the address
    reading.routes(app, site, renderer)
    reading.changing_routes(app, site, renderer)
    editing.letters_routes(app, site, renderer)
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


class Guard:
    """Puts the headers on each answer, and refuses what a page of another site asks for with 403."""

    def __init__(self, app: Any, *, loopback_only: bool) -> None:
        """`loopback_only`: nobody has to sign in, so that the address in the browser must be this machine's.

        Otherwise a name of another site that leads here (DNS rebinding) would make its pages pages of this server.
        """
        self._app = app
        self._loopback_only = loopback_only

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        answer = self._app if refusal is None else JSONResponse({"detail": refusal}, 403)
        await answer(scope, receive, protected)

    def _refusal(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "")
        if self._loopback_only and not is_loopback(_split(f"//{host}").hostname or ""):
            return (
                "server.authentication = false answers under names of this machine alone, such as localhost; "
                "for another name set server.authentication = true"
            )
        if method not in _READING and _is_of_another_site(headers, host):
            return "a page of another site may change nothing here"
        return None


def _is_of_another_site(headers: Headers, host: str) -> bool:
    """By what the browser says of the page; programs say nothing."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in _OTHER_SITES
    origin = headers.get("origin")
    return origin is not None and _split(origin).netloc != host


def _split(url: str) -> SplitResult:
    """Empty for what is no URL."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _signing_by_issuer(app: FastAPI, site: Site, renderer: Renderer) -> None:
    """Nobody is signed in by a request of another site: its answer must fit the attempt that the browser keeps."""
    if (sign_in := site.doors.sign_in) is None:
        return

    @app.get("/login/oidc")
    def begin(request: Request, to: str = "") -> Response:
        address, flow = sign_in.begin(local_path(to))
        answer = redirect(address)
        # Lax: the issuer's page leads back here. The session's own cookie is Strict, and not sent then.
        answer.set_cookie(
            FLOW_COOKIE,
            quote("~".join((flow.state, flow.nonce, flow.verifier, str(flow.until), flow.to)), safe="~"),
            FLOW_SECONDS,
            path=_PATH,
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )
        return answer

    @app.get(CALLBACK)
    def finish(request: Request) -> Response:
        site.doors.admit_stranger(request)
        answer = _finished(request, site, sign_in, renderer)
        answer.delete_cookie(FLOW_COOKIE, path=_PATH, httponly=True, samesite="lax")
        return answer


def _finished(request: Request, site: Site, sign_in: SignIn, renderer: Renderer) -> Response:
    flow = _flow(request.cookies.get(FLOW_COOKIE, ""))
    target = "/subscriptions" if flow is None else flow.to
    try:
        if flow is None:
            raise RefusedSignInError("This browser has not begun to sign in here, or forgot it. Sign in again.")
        caller = sign_in.finish(flow, dict(request.query_params))
    except RefusedSignInError as error:
        visitor = site.doors.visitor(request)
        return renderer.page(request, visitor, "login.html", error.status, to=target, wrong=False, refused=str(error))
    subject = Subject(caller.name, str(caller.role), sign_in.by)
    session = site.sessions.begin(subject=subject, seconds=sign_in.session_seconds)
    # A page, and no redirect: a browser sends the session's cookie only with what a page of this site leads to.
    return renderer.page(request, Visitor(caller, session, True), "signed_in.html", to=target)


def _flow(cookie: str) -> Flow | None:
    """The attempt of a cookie. Its browser may change it, and then fails at the issuer or ends up elsewhere here."""
    try:
        state, nonce, verifier, until, to = unquote(cookie).split("~", 4)
        return Flow(state, nonce, verifier, local_path(to), int(until))
    except ValueError:
        return None
