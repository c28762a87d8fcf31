"""A real OpenID provider on loopback: it signs its user in at once, and gives ID tokens for codes (with PKCE)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from itertools import count
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

from tests.support.loopback_server import LoopbackServer
from tests.unit.server.oidc.issuer import Issuer

CLIENT = "tailrace page"
CLIENT_SECRET = "client: s+cret%"  # noqa: S105 - of tests, with what has to be encoded


@dataclass
class Provider:
    """Its issuer signs; `claims` change what ID tokens say. It notes what it was asked, and what it refused why."""

    issuer: Issuer = field(default_factory=Issuer)
    redirect_url: str = ""
    secret: str | None = CLIENT_SECRET
    claims: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    token: str | None = None
    broken: bool = False
    asked: int = 0
    refusals: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def url(self) -> str:
        return self.issuer.url

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser is sent."""
        given = {**query}
        right = {"response_type": "code", "client_id": CLIENT, "redirect_uri": self.redirect_url}
        right["code_challenge_method"] = "S256"
        assert given | right == given, "an honest provider shows an error here"
        assert "openid" in given["scope"].split()
        assert len(given["state"]) >= 43
        assert len(given["nonce"]) >= 43
        if self.error is not None:
            return f"{self.redirect_url}?{urlencode({'error': self.error, 'state': given['state']})}"
        code = f"code-{next(self._numbers)}"
        self.codes[code] = given
        answer = {"code": code, "state": given["state"], "iss": self.url}
        return f"{self.redirect_url}?{urlencode(answer)}"

    def redeem(self, form: dict[str, str], authorization: str | None) -> dict[str, Any]:
        """As RFC 6749, 4.1.3, and RFC 7636, 4.6, have it."""
        reason = self._refusal(form, authorization)
        if reason is not None:
            self.refusals.append(reason)
            return {"error": "invalid_client" if reason == "client" else "invalid_grant"}
        asked = self.codes.pop(form["code"])
        claims = {"aud": CLIENT, "nonce": asked["nonce"], **self.claims}
        return {"access_token": "opaque", "token_type": "Bearer", "id_token": self.token or self.issuer.token(**claims)}

    def _refusal(self, form: dict[str, str], authorization: str | None) -> str | None:
        if self.secret is not None:
            given = base64.b64decode((authorization or "").removeprefix("Basic ")).decode().partition(":")
            if (unquote_plus(given[0]), unquote_plus(given[2])) != (CLIENT, self.secret):
                return "client"
        asked = self.codes.get(form["code"])
        if asked is None:
            return "code"
        if (form["client_id"], form["redirect_uri"]) != (CLIENT, asked["redirect_uri"]):
            return "redirect"
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return None if challenge == asked["code_challenge"] else "verifier"


@contextmanager
def providing() -> Iterator[Provider]:
    """One that answers while inside."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.asked += 1
            parts = urlsplit(self.path)
            documents: dict[str, dict[str, Any]] = {
                "/op/.well-known/openid-configuration": {
                    "issuer": provider.url,
                    "jwks_uri": f"{provider.url}/keys",
                    "authorization_endpoint": f"{provider.url}/authorize?tenant=1",
                    "token_endpoint": f"{provider.url}/token",
                },
                "/op/keys": {"keys": provider.issuer.keys},
            }
            if provider.broken:
                self._answer(500, b"")
            elif parts.path == "/op/authorize":
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                self.send_response(302)
                self.send_header("Location", provider.authorize(query))
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                document = documents.get(parts.path)
                self._answer(404 if document is None else 200, json.dumps(document).encode())

        def do_POST(self) -> None:
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            answer = provider.redeem(form, self.headers.get("Authorization"))
            self._answer(400 if "error" in answer else 200, json.dumps(answer).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with LoopbackServer(Handler, "provider") as server:
        provider.issuer.url = f"{server.address}/op"
        yield provider


ONE = "/subscriptions/shop.orders/warehouse"
SESSION = 1800


def oidc(provider: Provider, port: int, **more: Any) -> dict[str, Any]:
    provider.redirect_url = f"http://localhost:{port}/login/callback"
    section = {
        "issuer": provider.url,
        "audience": "tailrace",
        "roles": {"ops": "operate", "bosses": "admin"},
        "client_id": CLIENT,
        "client_secret": CLIENT_SECRET,
        "redirect_url": provider.redirect_url,
        "session_seconds": SESSION,
    }
    return {name: value for name, value in {**section, **more}.items() if value is not None}
