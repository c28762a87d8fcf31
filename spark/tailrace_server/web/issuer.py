"""Signing in by the issuer of [server.oidc]: to it and back, with an attempt that the browser keeps."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response

from tailrace_common.sections.server import CALLBACK
from tailrace_server.meta.sessions import Subject
from tailrace_server.oidc.sign_in import FLOW_SECONDS, Flow, RefusedSignInError
from tailrace_server.web.access import Visitor
from tailrace_server.web.rendering import Renderer, local_path, redirect
from tailrace_server.web.site import Site

FLOW_COOKIE: Final = "tailrace_sign_in"
_PATH: Final = "/login"


def routes(app: FastAPI, site: Site, renderer: Renderer) -> None:
    """Nobody is signed in by a request of another site: its answer must fit the attempt that the browser keeps."""

    @app.get("/login/oidc")
    def begin(request: Request, to: str = "") -> Response:
        if site.doors.sign_in is None:
            raise HTTPException(404, "nobody signs in by an issuer here (server.oidc.client_id)")
        address, flow = site.doors.sign_in.begin(local_path(to))
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
        if site.doors.sign_in is None:
            raise HTTPException(404, "nobody signs in by an issuer here (server.oidc.client_id)")
        site.doors.admit_stranger(request)
        answer = _finished(request, site, renderer)
        answer.delete_cookie(FLOW_COOKIE, path=_PATH, httponly=True, samesite="lax")
        return answer


def _finished(request: Request, site: Site, renderer: Renderer) -> Response:
    sign_in, flow = site.doors.sign_in, _flow(request.cookies.get(FLOW_COOKIE, ""))
    target = "/subscriptions" if flow is None else flow.to
    try:
        if flow is None or sign_in is None:
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
