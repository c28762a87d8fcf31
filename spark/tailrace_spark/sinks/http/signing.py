"""Signatures of requests, as the Standard Webhooks specification has them (standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

_PREFIX: Final = "whsec_"


def key_bytes(key: str) -> bytes:
    """The bytes of a signing key: base64 behind `whsec_`, else the text itself. Raises ValueError for no base64."""
    if not key.startswith(_PREFIX):
        return key.encode()
    try:
        return base64.b64decode(key.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"what follows {_PREFIX} is not base64") from None


def signed_headers(keys: Sequence[bytes], identity: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers that name and sign a request: id, time (seconds since the epoch), a signature for each key.

    A signature is HMAC-SHA256 over `id.time.body`. With no keys there is none.
    """
    headers = {"webhook-id": identity, "webhook-timestamp": str(seconds)}
    if keys:
        content = f"{identity}.{seconds}.".encode() + body
        signatures = (base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode() for key in keys)
        headers["webhook-signature"] = " ".join(f"v1,{signature}" for signature in signatures)
    return headers
