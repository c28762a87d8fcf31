"""Asks an issuer: for its discovery document (OpenID Connect), and then what stands in it for keys and tokens."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit

import httpx2
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from tailrace_common.closing import Closing
from tailrace_common.sections.section import is_loopback
from tailrace_common.sections.server import OidcSettings
from tailrace_common.tls import tls_context
from tailrace_schemas.errors import ServiceError

_SECONDS: Final = 5.0
_MOST_BYTES: Final = 1 << 20
_DOCUMENT: Final = "/.well-known/openid-configuration"
log = logging.getLogger("tailrace_server")

AGAIN_SECONDS: Final = 10.0
"""So long nothing more is asked of the issuer: tokens that anybody makes up must not become requests to it."""
_WAIT_SECONDS: Final = 1.0
STALE_SECONDS: Final = 86_400.0
"""So long its last keys are good while it does not answer."""
_LEAST_RSA_DIGITS: Final = 2048 // 6  # the modulus is in base64

Key = RSAKey | ECKey
Fetch = Callable[[], Sequence[Mapping[str, Any]]]
"""Gives the issuer's keys as JSON Web Keys. Raises ServiceError."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where browsers are sent to sign in, and where this server gets tokens."""

    authorization: str
    token: str


class Discovery(Closing):
    """A client of one issuer."""

    def __init__(self, settings: OidcSettings) -> None:
        """Raises SettingsError for a file of authorities that is none."""
        self._settings = settings
        self._issuer = settings.issuer
        trust: Any = True
        if settings.tls_ca_file is not None:
            trust = tls_context("server.oidc", settings.tls_ca_file)
        self._client = httpx2.Client(timeout=_SECONDS, verify=trust, follow_redirects=False)

    def keys(self) -> Sequence[Mapping[str, Any]]:
        """The issuer's keys, as JSON Web Keys. Raises ServiceError."""
        keys = self._json(self._address(self._document(), "jwks_uri")).get("keys")
        if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
            raise ServiceError(f"the keys of {self._issuer} cannot be read: its jwks_uri answers no set of keys")
        return keys

    def endpoints(self) -> Endpoints:
        """Those of the authorization code flow. Raises ServiceError."""
        document = self._document()
        return Endpoints(self._address(document, "authorization_endpoint"), self._address(document, "token_endpoint"))

    def redeem(self, address: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        """What the token endpoint answers to a form: tokens, or a refusal with `error`. Raises ServiceError."""
        secret = self._settings.client_secret
        if secret is None:
            return self._json(address, form, refusals=(400, 401))
        # RFC 6749, 2.3.1: both are encoded as in a form before they are put into the header.
        auth = quote_plus(form["client_id"]), quote_plus(secret.get_secret_value())
        return self._json(address, form, auth, refusals=(400, 401))

    def _document(self) -> Mapping[str, Any]:
        document = self._json(self._issuer.rstrip("/") + _DOCUMENT)
        if document.get("issuer") != self._issuer:
            raise ServiceError(
                f"the discovery document of {self._issuer} is of another issuer: set server.oidc.issuer letter for "
                "letter as it stands there"
            )
        return document

    def _address(self, document: Mapping[str, Any], name: str) -> str:
        address = document.get(name)
        if not isinstance(address, str) or not self._is_safe(address):
            raise ServiceError(f"the discovery document of {self._issuer} has no {name} that is https")
        return address

    def _is_safe(self, address: str) -> bool:
        parts = urlsplit(address)
        plain = urlsplit(self._issuer).scheme == "http" and is_loopback(parts.hostname or "")
        return parts.scheme == "https" or (plain and parts.scheme == "http")

    def _json(
        self,
        address: str,
        form: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        refusals: Sequence[int] = (),
    ) -> Mapping[str, Any]:
        method, headers = "GET" if form is None else "POST", {"Accept": "application/json"}
        try:
            with self._client.stream(method, address, headers=headers, data=form, auth=auth) as answer:
                if answer.status_code not in (200, *refusals):
                    raise ServiceError(f"the issuer of tokens answers {answer.status_code} at {address}")
                value = json.loads(_body(answer, address))
        except httpx2.HTTPError as error:
            raise ServiceError(f"the issuer of tokens does not answer at {address}: {error}") from error
        except (ValueError, RecursionError):
            raise ServiceError(f"the issuer of tokens answers no JSON at {address}") from None
        if not isinstance(value, dict):
            raise ServiceError(f"the issuer of tokens answers no object at {address}")
        return value

    def close(self) -> None:
        """Leave the issuer."""
        self._client.close()


def _body(answer: httpx2.Response, address: str) -> bytes:
    """All of it. What drips is given up: the client's own limit is of each piece."""
    body, deadline = b"", time.monotonic() + _SECONDS
    for piece in answer.iter_bytes():
        body += piece
        if time.monotonic() > deadline:
            raise ServiceError(f"the issuer of tokens answers for longer than {_SECONDS:g} s at {address}")
        if len(body) > _MOST_BYTES:
            raise ServiceError(f"the issuer of tokens answers more than {_MOST_BYTES} bytes at {address}")
    return body


class IssuerKeys:
    """The keys by their ids. Any thread may ask; one of them asks the issuer."""

    def __init__(self, fetch: Fetch, seconds: float, clock: Callable[[], float]) -> None:
        """Keys are good for so many seconds without asking again; `clock` is monotonic."""
        self._fetch = fetch
        self._seconds = seconds
        self._clock = clock
        self._asking = threading.Lock()
        self._keys: Sequence[Key] | None = None
        self._fetched = 0.0
        self._tried: float | None = None

    def key(self, identity: str | None) -> Key | None:
        """The key of this id, or the only one for a token that names none. None where the issuer has no such key.

        Raises ServiceError where the issuer has not answered yet, or for a day.
        """
        if self._keys is None or self._clock() - self._fetched >= self._seconds:
            self._refresh(wait=self._keys is None)
        key = self._chosen(identity)
        if key is None:  # the issuer may have changed its keys meanwhile
            self._refresh(wait=True)
            key = self._chosen(identity)
        return key

    def _chosen(self, identity: str | None) -> Key | None:
        if self._keys is None or self._clock() - self._fetched > STALE_SECONDS:
            raise ServiceError(
                "the issuer of tokens (server.oidc.issuer) does not answer this server; its log says why"
            )
        if identity is None:
            return self._keys[0] if len(self._keys) == 1 else None
        return next((key for key in self._keys if key.kid == identity), None)

    def _refresh(self, *, wait: bool) -> None:
        """Ask the issuer, unless that was done just now. Without `wait` not if another thread is asking."""
        if not self._asking.acquire(timeout=_WAIT_SECONDS if wait else 0):
            return  # an issuer that takes its time holds up nobody else
        try:
            now = self._clock()
            if self._tried is not None and now - self._tried < AGAIN_SECONDS:
                return
            self._tried = now
            self._keys, self._fetched = usable(self._fetch()), now
        except ServiceError as error:
            log.warning("%s; its last keys are used for a day, then no token is accepted", error)
        finally:
            self._asking.release()


def usable(entries: Sequence[Mapping[str, Any]]) -> list[Key]:
    """The public keys that sign, of a set as the issuer publishes it; what is of another kind is left out.

    A shared secret in it (`oct`) is never a key here: whoever reads the set could sign with it.
    """
    keys: list[Key] = []
    for entry in entries:
        try:
            key = _imported(entry)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            log.warning("a key of the token issuer cannot be used and is ignored: %s", type(error).__name__)
            continue
        if key is not None:
            keys.append(key)
    return keys


def _imported(entry: Mapping[str, Any]) -> Key | None:
    if entry.get("use", "sig") != "sig":
        return None
    public = {name: value for name, value in entry.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
    if entry.get("kty") == "EC":
        return ECKey.import_key(public)
    if entry.get("kty") != "RSA" or len(str(entry.get("n"))) < _LEAST_RSA_DIGITS:
        return None
    return RSAKey.import_key(public)
