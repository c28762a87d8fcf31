"""Private keys as Java's Kafka client reads them. Imports cryptography."""

from __future__ import annotations

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tailrace_schemas.errors import SettingsError


def plain_pkcs8(pem: str, password: str | None) -> str:
    """The private key of any PEM text as PKCS 8 without encryption.

    Java's client takes no other form than PKCS 8, and of encrypted ones not those that OpenSSL makes today (PBES2).
    Raises SettingsError, without a word of the key, for what is none or has another password.
    """
    try:
        key = load_pem_private_key(pem.encode(), None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SettingsError(f"[kafka] ssl.key: no PEM key, or ssl.key.password is not its own: {error}") from None
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
