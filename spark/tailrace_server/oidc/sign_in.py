"""Signing in on the page: the authorization code flow of OpenID Connect, with PKCE (RFC 7636, S256)."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final
from urllib.parse import urlencode, urlsplit

from tailrace_common.sections.server import OidcSettings
from tailrace_schemas.errors import ServiceError
from tailrace_server.meta.credentials import Caller
from tailrace_server.oidc.discovery import Discovery, Endpoints
from tailrace_server.oidc.tokens import RefusedTokenError, Tokens

FLOW_SECONDS: Final = 600
"""So long somebody may take at the issuer."""
_AGAIN_SECONDS: Final = 10.0
_LONGEST_CODE: Final = 4096
_ERROR: Final = re.compile(r"[a-z_]{1,60}")


class RefusedSignInError(Exception):
    """Why nobody is signed in, in words for who tried. `status` is that of the answer."""

    def __init__(self, words: str, status: int = 401) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True, slots=True)
class Flow:
    """One attempt, as its browser keeps it: `to` is the page that was asked for, `until` its end in seconds."""

    state: str
    nonce: str
    verifier: str
    to: str
    until: int


class SignIn:
    """Sends browsers to the issuer, and takes its answers. Any thread may call."""

    def __init__(
        self,
        settings: OidcSettings,
        issuer: Discovery,
        tokens: Tokens,
        clock: Callable[[], float],
        random: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        """`clock` is wall time in seconds; `random` gives 43 letters and digits or more, of which nobody can guess any.

        Raises ValueError for settings without client_id.
        """
        if settings.client_id is None or settings.redirect_url is None:
            raise ValueError("server.oidc has no client_id: nobody can sign in by it")
        self._settings = settings
        self._client_id, self._redirect_url = settings.client_id, settings.redirect_url
        self._issuer = issuer
        self._tokens = tokens
        self._clock = clock
        self._random = random
        self._asking = threading.Lock()
        self._known: tuple[float, Endpoints] | None = None
        self._failed: tuple[float, ServiceError] | None = None

    @property
    def by(self) -> str:
        """What a session is signed in by: those of another issuer or client end."""
        return f"{self._settings.issuer} {self._client_id}"

    @property
    def host(self) -> str:
        """The issuer's host, for people."""
        return urlsplit(self._settings.issuer).netloc

    @property
    def session_seconds(self) -> int:
        """How long somebody stays signed in."""
        return self._settings.session_seconds

    def begin(self, to: str) -> tuple[str, Flow]:
        """The address to send a browser to, and what it must bring back. Raises ServiceError."""
        address = self._endpoints().authorization
        flow = Flow(self._random(), self._random(), self._random(), to, int(self._clock()) + FLOW_SECONDS)
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._redirect_url,
            "scope": " ".join(self._settings.scopes),
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": challenge(flow.verifier),
            "code_challenge_method": "S256",
        }
        return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(parameters)}", flow

    def finish(self, flow: Flow, answer: Mapping[str, str]) -> Caller:
        """Who signed in, by what the issuer's redirect says. Raises RefusedSignInError, ServiceError."""
        if flow.until < self._clock():
            raise RefusedSignInError("It took longer than ten minutes. Sign in again.")
        if not compare_digest(answer.get("state", "").encode(), flow.state.encode()):
            raise RefusedSignInError("The answer belongs to another attempt. Sign in again.")
        # RFC 9207: an answer of another issuer must not be taken for this one's.
        if answer.get("iss", self._settings.issuer) != self._settings.issuer:
            raise RefusedSignInError("The answer is of another issuer.")
        if "error" in answer:
            raise RefusedSignInError(f"The issuer refused: {_error(answer['error'])}.", 403)
        code = answer.get("code", "")
        if not code or len(code) > _LONGEST_CODE:
            raise RefusedSignInError("The answer has no code. Sign in again.")
        return self._caller(flow, code)

    def _caller(self, flow: Flow, code: str) -> Caller:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_url,
            "client_id": self._client_id,
            "code_verifier": flow.verifier,
        }
        answer = self._issuer.redeem(self._endpoints().token, form)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise RefusedSignInError(f"The issuer gave no ID token: {_error(answer.get('error'))}.")
        try:
            return self._tokens.signed_in(token, self._client_id, flow.nonce)
        except RefusedTokenError as error:
            raise RefusedSignInError(f"The issuer's answer does not count: {error}.", error.status) from None

    def _endpoints(self) -> Endpoints:
        """Asked for every `keys_seconds`; after a failure not again at once, as anybody may begin to sign in."""
        with self._asking:
            now = self._clock()
            if self._known is not None and now - self._known[0] < self._settings.keys_seconds:
                return self._known[1]
            if self._failed is not None and now - self._failed[0] < _AGAIN_SECONDS:
                raise self._failed[1]
            try:
                self._known = now, self._issuer.endpoints()
            except ServiceError as error:
                self._failed = now, error
                raise
            return self._known[1]


def challenge(verifier: str) -> str:
    """The S256 challenge of a verifier (RFC 7636, 4.2)."""
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _error(value: object) -> str:
    """An error code of OAuth 2.0; anything else is not repeated."""
    return value if isinstance(value, str) and _ERROR.fullmatch(value) else "without a reason"
