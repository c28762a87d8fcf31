"""PKCS #12 keystores (RFC 7292): the secret keys that Java's keytool stores in them.

`cryptography` reads a private key and certificates out of such a file, and passes over secret keys.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from functools import partial
from typing import Final

from tailrace.segments.stored_keys import (
    BMP_STRING,
    CONTEXT_0,
    OCTETS,
    OID,
    SEQUENCE,
    SET,
    Element,
    StoredKey,
    WrongPasswordError,
    aes_cbc,
    elements,
    only,
    sequence,
    triple_des_cbc,
)

_PKCS: Final = "2a864886f70d01"  # 1.2.840.113549.1
_DATA, _ENCRYPTED_DATA = f"{_PKCS}0701", f"{_PKCS}0706"
_SECRET_BAG, _SHROUDED_KEY = f"{_PKCS}0c0a0105", f"{_PKCS}0c0a0102"
_FRIENDLY_NAME: Final = f"{_PKCS}0914"
_PBES2, _PBKDF2, _TRIPLE_DES_PBE = f"{_PKCS}050d", f"{_PKCS}050c", f"{_PKCS}0c0103"
_AES_CBC: Final = {"60864801650304012a": 32, "608648016503040116": 24, "608648016503040102": 16}
_PRF: Final = {
    "2a864886f70d0207": "sha1",
    "2a864886f70d0208": "sha224",
    "2a864886f70d0209": "sha256",
    "2a864886f70d020a": "sha384",
    "2a864886f70d020b": "sha512",
}
_DIGESTS: Final = {
    "2b0e03021a": "sha1",
    "608648016503040204": "sha224",
    "608648016503040201": "sha256",
    "608648016503040202": "sha384",
    "608648016503040203": "sha512",
}
_BLOCKS: Final = {"sha1": 64, "sha224": 64, "sha256": 64, "sha384": 128, "sha512": 128}
_MOST_ROUNDS: Final = 5_000_000
"""The most rounds that Java accepts (PKCS12KeyStore.MAX_ITERATION_COUNT)."""
_CIPHER_KEY, _CIPHER_IV, _MAC_KEY = 1, 2, 3


def read_pkcs12(data: bytes, password: str) -> list[StoredKey]:
    """The secret keys of the keystore, still encrypted. Raises WrongPasswordError, and ValueError for other bytes."""
    version, auth_safe, *mac = sequence(data)
    if version.integer() != 3:
        raise ValueError("not version 3 of PKCS #12")
    content = _content(auth_safe, _DATA)
    if mac:
        _verify(mac[0], content, password)
    keys: list[StoredKey] = []
    for safe in sequence(content):
        kind = safe.children(SEQUENCE)[0].expect(OID).hex()
        # Keytool puts certificates into what is encrypted as a whole, and keys elsewhere, each encrypted by itself.
        if kind == _DATA:
            keys += (key for bag in sequence(_content(safe, _DATA)) if (key := _secret_key(bag)) is not None)
        elif kind != _ENCRYPTED_DATA:
            raise ValueError(f"content of type {kind}")
    return keys


def _content(info: Element, kind: str) -> bytes:
    """The octets of a ContentInfo of this type."""
    content_type, value = info.children(SEQUENCE)
    if content_type.expect(OID).hex() != kind:
        raise ValueError(f"content of type {content_type.content.hex()}")
    return only(value.expect(CONTEXT_0)).expect(OCTETS)


def _verify(mac: Element, content: bytes, password: str) -> None:
    info, salt, *rounds = mac.children(SEQUENCE)
    algorithm, digest = info.children(SEQUENCE)
    name = _DIGESTS.get(algorithm.children(SEQUENCE)[0].expect(OID).hex())
    if name is None:
        raise ValueError("a checksum of a kind that is not read")
    repeated = _rounds(rounds[0]) if rounds else 1
    key = _derived(name, password, salt.expect(OCTETS), repeated, _MAC_KEY, hashlib.new(name).digest_size)
    if not hmac.compare_digest(hmac.digest(key, content, name), digest.expect(OCTETS)):
        raise WrongPasswordError("the keystore's checksum is another one")


def _rounds(element: Element) -> int:
    rounds = element.integer()
    if not 0 < rounds <= _MOST_ROUNDS:
        raise ValueError(f"{rounds} rounds")
    return rounds


def _secret_key(bag: Element) -> StoredKey | None:
    """The secret key of a SafeBag, None of one of another kind."""
    kind, value, *attributes = bag.children(SEQUENCE)
    if kind.expect(OID).hex() != _SECRET_BAG:
        return None
    secret_type, secret = only(value.expect(CONTEXT_0)).children(SEQUENCE)
    if secret_type.expect(OID).hex() != _SHROUDED_KEY:
        return None
    encrypted = only(secret.expect(CONTEXT_0)).expect(OCTETS)
    return StoredKey(next(_names(attributes), ""), partial(_opened, encrypted))


def _names(attributes: list[Element]) -> Iterator[str]:
    for attribute in attributes[0].children(SET) if attributes else []:
        kind, values = attribute.children(SEQUENCE)
        if kind.expect(OID).hex() == _FRIENDLY_NAME:
            yield from (value.expect(BMP_STRING).decode("utf-16-be") for value in elements(values.expect(SET)))


def _opened(encrypted: bytes, password: str) -> bytes:
    """The key in an EncryptedPrivateKeyInfo. Raises ValueError."""
    algorithm, text = sequence(encrypted)
    kind, parameters = algorithm.children(SEQUENCE)
    decrypt = {_PBES2: _pbes2, _TRIPLE_DES_PBE: _triple_des}.get(kind.expect(OID).hex())
    if decrypt is None:
        raise ValueError(f"a cipher that is not read: {kind.content.hex()}")
    _, _, key, *_ = sequence(decrypt(parameters, text.expect(OCTETS), password))
    return key.expect(OCTETS)


def _pbes2(parameters: Element, text: bytes, password: str) -> bytes:
    """RFC 8018, section 6.2, with PBKDF2 and AES."""
    derivation, cipher = parameters.children(SEQUENCE)
    kind, options = derivation.children(SEQUENCE)
    name, iv = cipher.children(SEQUENCE)
    size = _AES_CBC.get(name.expect(OID).hex())
    if kind.expect(OID).hex() != _PBKDF2 or size is None:
        raise ValueError("a cipher that is not read")
    salt, rounds, *rest = options.children(SEQUENCE)
    functions = [option.children(SEQUENCE)[0].expect(OID).hex() for option in rest if option.tag == SEQUENCE]
    prf = _PRF.get(functions[0]) if functions else "sha1"
    if prf is None:
        raise ValueError("a derivation that is not read")
    key = hashlib.pbkdf2_hmac(prf, password.encode(), salt.expect(OCTETS), _rounds(rounds), size)
    return aes_cbc(key, iv.expect(OCTETS), text)


def _triple_des(parameters: Element, text: bytes, password: str) -> bytes:
    """RFC 7292, appendix C: pbeWithSHAAnd3-KeyTripleDES-CBC, which Java wrote up to version 15."""
    salt, rounds = parameters.children(SEQUENCE)
    derive = partial(_derived, "sha1", password, salt.expect(OCTETS), _rounds(rounds))
    return triple_des_cbc(derive(_CIPHER_KEY, 24), derive(_CIPHER_IV, 8), text)


def _derived(digest: str, password: str, salt: bytes, rounds: int, purpose: int, size: int) -> bytes:
    """RFC 7292, appendix B.2: `size` bytes for this purpose."""
    block = _BLOCKS[digest]
    secret = password.encode("utf-16-be", "surrogatepass") + b"\0\0"
    mixed = _filled(salt, block) + _filled(secret, block)
    output = b""
    while len(output) < size:
        hashed = bytes([purpose]) * block + mixed
        for _ in range(rounds):
            hashed = hashlib.new(digest, hashed, usedforsecurity=False).digest()
        output += hashed
        step = int.from_bytes(_filled(hashed, block)[:block], "big") + 1
        blocks = (int.from_bytes(mixed[start : start + block], "big") for start in range(0, len(mixed), block))
        mixed = b"".join(((salted + step) % (1 << block * 8)).to_bytes(block, "big") for salted in blocks)
    return output[:size]


def _filled(text: bytes, block: int) -> bytes:
    """The text repeated up to a whole number of blocks."""
    size = -(-len(text) // block) * block
    return (text * (size // len(text) + 1))[:size] if text else b""
