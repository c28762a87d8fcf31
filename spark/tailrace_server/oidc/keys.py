"""The keys that an issuer publishes: looked up by its discovery document, and kept for a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from tailrace_schemas.errors import ServiceError

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
