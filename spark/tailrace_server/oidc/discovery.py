"""Asks an issuer: for its discovery document (OpenID Connect), and then what stands in it for keys and tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit

import httpx2

from tailrace_common.closing import Closing
from tailrace_common.sections.section import is_loopback
from tailrace_common.sections.server import OidcSettings
from tailrace_common.tls import tls_context
from tailrace_schemas.errors import ServiceError

_SECONDS: Final = 5.0
_MOST_BYTES: Final = 1 << 20
_DOCUMENT: Final = "/.well-known/openid-configuration"


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
