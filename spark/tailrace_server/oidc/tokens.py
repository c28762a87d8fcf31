"""Whose a bearer token is, and what it allows: signature, issuer, audience, time, then the claim of roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hmac import compare_digest
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import BadSignatureError, ClaimError, ExpiredTokenError, JoseError, UnsupportedAlgorithmError
from joserfc.jws import JWSRegistry

from tailrace_common.sections.server import OidcSettings
from tailrace_server.meta.credentials import Caller, Role
from tailrace_server.oidc.discovery import IssuerKeys, Key

LONGEST_SUBJECT: Final = 190
"""The audit keeps 200 characters of a name, and two subjects must not become one."""
_LONGEST_HEAD: Final = 8192  # some carry their certificates
_CLAIMS: Final = {
    "iss": "is of another issuer",
    "aud": "is for another audience",
    "exp": "does not say until when it is good",
    "nbf": "is not good yet",
    "iat": "is issued in the future",
}


class RefusedTokenError(Exception):
    """Why a token is refused, in words that have nothing of it. `status` is that of the answer."""

    def __init__(self, words: str, status: int = 401) -> None:
        super().__init__(f"the token {words}")
        self.status = status


class Tokens:
    """The tokens of one issuer."""

    def __init__(self, settings: OidcSettings, keys: IssuerKeys, clock: Callable[[], float]) -> None:
        """`clock` is wall time, in seconds."""
        self._settings = settings
        self._keys = keys
        self._clock = clock
        # Issuers put words of their own into a head; those that must be understood are in `crit`, which is looked at.
        self._registry = JWSRegistry(algorithms=list(settings.algorithms), strict_check_header=False)
        self._registry.max_header_length = _LONGEST_HEAD

    def caller(self, token: str) -> Caller:
        """Whose a bearer token is. Raises RefusedTokenError, and ServiceError where the issuer's keys cannot be had."""
        return self._holder(self._claims(token, self._settings.audience))

    def signed_in(self, token: str, client_id: str, nonce: str) -> Caller:
        """Who signed in by an ID token, which answers a request with this nonce. Raises as `caller`."""
        claims = self._claims(token, client_id)
        answered = claims.get("nonce")
        if not isinstance(answered, str) or not compare_digest(answered.encode(), nonce.encode()):
            raise RefusedTokenError("answers another request to sign in")
        # OpenID Connect Core, 3.1.3.7: of several audiences `azp` says who asked.
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else client_id) != client_id:
            raise RefusedTokenError("was issued for another client")
        return self._holder(claims)

    def _holder(self, claims: Mapping[str, Any]) -> Caller:
        subject = claim(claims, self._settings.subject_claim)
        if not isinstance(subject, str) or not subject or not subject.isprintable():
            raise RefusedTokenError("names no subject (server.oidc.subject_claim)")
        if len(subject) > LONGEST_SUBJECT:
            raise RefusedTokenError(f"has a subject of more than {LONGEST_SUBJECT} characters")
        roles = [Role(self._settings.roles[word]) for word in _words(claim(claims, self._settings.role_claim))
                 if word in self._settings.roles]  # fmt: skip
        if not roles:
            raise RefusedTokenError("has no role here (server.oidc.role_claim, roles)", 403)
        return Caller(f"subject {subject}", max(roles, key=list(Role).index))

    def _claims(self, token: str, audience: str) -> Mapping[str, Any]:
        settings = self._settings
        skew = round(settings.clock_skew_seconds)
        try:
            claims = jwt.decode(token, self._key, registry=self._registry).claims
            jwt.JWTClaimsRegistry(
                now=int(self._clock()),
                leeway=skew,
                iss={"essential": True, "value": settings.issuer},
                aud={"essential": True, "value": audience},
                exp={"essential": True},
            ).validate(claims)
        except UnsupportedAlgorithmError:
            raise RefusedTokenError("is signed in a way that is not taken (server.oidc.algorithms)") from None
        except BadSignatureError:
            raise RefusedTokenError("has a signature that does not fit") from None
        except ExpiredTokenError:
            raise RefusedTokenError("has expired") from None
        except ClaimError as error:
            raise RefusedTokenError(_refusal(error.claim)) from None
        except (JoseError, ValueError, RecursionError):
            raise RefusedTokenError("is no signed token") from None
        return claims

    def _key(self, signed: Any) -> Key:
        """The key of a token that is not verified yet: only what its head says of key and algorithm counts."""
        head = signed.headers()
        identity = head.get("kid")
        key = self._keys.key(identity if isinstance(identity, str) else None)
        if key is None or key.get("alg") not in (None, head["alg"]):
            raise RefusedTokenError("is signed by a key that the issuer does not publish")
        return key


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its whole name, else by the steps between dots; None where there is none."""
    if name in claims:
        return claims[name]
    step, dot, rest = name.partition(".")
    below = claims.get(step)
    return claim(below, rest) if dot and isinstance(below, Mapping) else None


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _refusal(names: str) -> str:
    return next((_CLAIMS[name] for name in names.split(",") if name in _CLAIMS), "has claims that cannot be")
