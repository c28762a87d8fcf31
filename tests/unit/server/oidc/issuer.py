"""A real issuer on loopback: it publishes keys over HTTP, and its tokens are signed by `cryptography` itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.support.loopback_server import LoopbackServer

NOW = 1_800_000_000
AUDIENCE = "tailrace"


def rsa_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """The key of a name, made once: making one takes its time."""
    return _made(name, bits)


@cache
def _made(_name: str, bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def public_jwk(name: str, bits: int = 2048, **more: str) -> dict[str, str]:
    numbers = rsa_key(name, bits).public_key().public_numbers()
    return {"kty": "RSA", "kid": name, "use": "sig", "n": number(numbers.n), "e": number(numbers.e), **more}


def public_pem(name: str) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return rsa_key(name).public_key().public_bytes(serialization.Encoding.PEM, form)


def parts(head: Mapping[str, Any], claims: object) -> str:
    return f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}"


@dataclass
class Issuer:
    """What it publishes, and how often it was asked; `broken` answers 500."""

    url: str = ""
    keys: list[dict[str, str]] = field(default_factory=lambda: [public_jwk("first")])
    document: dict[str, object] = field(default_factory=dict)
    broken: bool = False
    drips: bool = False
    asked: int = 0

    def claims(self, **changed: Any) -> dict[str, Any]:
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "maria",
            "exp": NOW + 300,
            "iat": NOW,
            "roles": ["ops"],
            **changed,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, kid: str | None = "first", signer: str | None = None, head: Any = None, **changed: Any) -> str:
        """RS256. `signer` is the name of the key that signs, by default the one that the head names."""
        names = {} if kid is None else {"kid": kid}
        unsigned = parts({"alg": "RS256", "typ": "JWT", **names, **(head or {})}, self.claims(**changed))
        signature = rsa_key(signer or kid or "first").sign(unsigned.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{unsigned}.{b64(signature)}"

    def unsigned(self) -> str:
        return parts({"alg": "none", "kid": "first"}, self.claims()) + "."

    def by_secret(self, secret: bytes) -> str:
        """HS256, with what everybody can read as the secret."""
        unsigned = parts({"alg": "HS256", "kid": "first"}, self.claims())
        return f"{unsigned}.{b64(hmac.digest(secret, unsigned.encode(), hashlib.sha256))}"


def elliptic(issuer: Issuer) -> str:
    """A token of ES256, whose key is published from now on."""
    key = ec.generate_private_key(ec.SECP256R1())
    point = key.public_key().public_numbers()
    x, y = (b64(value.to_bytes(32, "big")) for value in (point.x, point.y))
    issuer.keys.append({"kty": "EC", "kid": "curve", "crv": "P-256", "x": x, "y": y})
    unsigned = parts({"alg": "ES256", "kid": "curve"}, issuer.claims())
    r, s = decode_dss_signature(key.sign(unsigned.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{unsigned}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


@contextmanager
def issuing() -> Iterator[Issuer]:
    """One that answers while inside."""
    issuer, ended = Issuer(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked += 1
            documents = {
                "/realms/ops/.well-known/openid-configuration": {
                    "issuer": issuer.url,
                    "jwks_uri": f"{issuer.url}/keys",
                    **issuer.document,
                },
                "/realms/ops/keys": {"keys": issuer.keys},
            }
            document = None if issuer.broken else documents.get(self.path)
            body = json.dumps(document).encode()
            self.send_response(200 if document is not None else 500)
            if not issuer.drips:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            while issuer.drips and not ended.wait(0.02):
                self.wfile.write(b" ")
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with LoopbackServer(Handler, "issuer") as server:
        issuer.url = f"{server.address}/realms/ops"
        try:
            yield issuer
        finally:
            ended.set()
