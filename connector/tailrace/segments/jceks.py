"""Java's JCEKS and JKS keystores: the secret keys of the former.

The layout is that of com.sun.crypto.provider.JceKeyStore and sun.security.provider.JavaKeyStore; the cipher of a key
is that of SunJCE's KeyProtector (PBEWithMD5AndTripleDES).
"""

from __future__ import annotations

import hashlib
import hmac
from functools import partial
from typing import Final

from tailrace.segments.der import OCTETS, sequence
from tailrace.segments.java_objects import Input, JavaObject, key_fields, read_object
from tailrace.segments.stored_keys import StoredKey, WrongPasswordError, triple_des_cbc

JCEKS: Final = b"\xce\xce\xce\xce"
JKS: Final = b"\xfe\xed\xfe\xed"
_PRIVATE_KEY, _CERTIFICATE, _SECRET_KEY = 1, 2, 3
_SALT: Final = b"Mighty Aphrodite"
_DIGEST_SIZE: Final = 20
_CIPHER: Final = "PBEWithMD5AndTripleDES"
_MOST_ROUNDS: Final = 5_000_000
"""The most rounds of MD5 that Java accepts (KeyProtector.MAX_ITERATION_COUNT)."""


def read_jceks(data: bytes, password: str) -> list[StoredKey]:
    """The secret keys of the keystore, still encrypted. Raises WrongPasswordError, and ValueError for other bytes."""
    body, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    source = Input(body)
    if source.take(4) not in (JCEKS, JKS) or (version := source.number(4)) not in (1, 2):
        raise ValueError("neither JCEKS nor JKS")
    expected = hashlib.sha1(_utf16(password) + _SALT + body, usedforsecurity=False).digest()
    if not hmac.compare_digest(digest, expected):
        raise WrongPasswordError("the keystore's checksum is another one")
    entries = [_entry(source, version) for _ in range(source.number(4))]
    if source.offset != len(body):
        raise ValueError("bytes after the last entry")
    return [entry for entry in entries if entry is not None]


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _entry(source: Input, version: int) -> StoredKey | None:
    """A secret key; None for entries of other kinds."""
    kind, alias = source.number(4), source.text()
    source.take(8)  # when it was made
    if kind == _SECRET_KEY:
        return StoredKey(alias, partial(_unsealed, read_object(source)))
    if kind == _PRIVATE_KEY:
        source.take(source.number(4))
        for _ in range(source.number(4)):
            _skip_certificate(source, version)
    elif kind == _CERTIFICATE:
        _skip_certificate(source, version)
    else:
        raise ValueError(f"an entry of kind {kind}")
    return None


def _skip_certificate(source: Input, version: int) -> None:
    if version == 2:
        source.text()  # its type
    source.take(source.number(4))


def _unsealed(sealed: JavaObject, password: str) -> bytes:
    """The key in a javax.crypto.SealedObject. Raises ValueError."""
    parameters, text = sealed.fields.get("encodedParams"), sealed.fields.get("encryptedContent")
    if sealed.fields.get("sealAlg") != _CIPHER or not isinstance(parameters, bytes) or not isinstance(text, bytes):
        raise ValueError(f"a key that is not sealed by {_CIPHER}")
    salt, rounds = sequence(parameters)
    key, iv = _derived(password.encode("ascii"), salt.expect(OCTETS), rounds.integer())
    opened = key_fields(read_object(Input(triple_des_cbc(key, iv, text))))
    if opened is None:
        raise ValueError("what was sealed is no secret key")
    return opened


def _derived(password: bytes, salt: bytes, rounds: int) -> tuple[bytes, bytes]:
    """Key and vector (PBES1Core.deriveCipherKey): each half of the salt is hashed with the password by itself."""
    if len(salt) != 8 or not 0 < rounds <= _MOST_ROUNDS:
        raise ValueError("a salt or a number of rounds that Java does not write")
    halves = [salt[:4], salt[4:]]
    if halves[0] == halves[1]:
        halves[0] = halves[0][::-1]
    digests = b""
    for half in halves:
        digest = half
        for _ in range(rounds):
            digest = hashlib.md5(digest + password, usedforsecurity=False).digest()
        digests += digest
    return digests[:24], digests[24:]
