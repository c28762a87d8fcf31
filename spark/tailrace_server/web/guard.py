"""ASGI: what protects browsers. No other site's page asks for changes, and no page runs what is not of this server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from tailrace_common.sections.section import is_loopback

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
