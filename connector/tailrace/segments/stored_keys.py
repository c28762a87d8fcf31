"""What the readers of both kinds of keystore share: an entry as it is stored, and the error of a wrong password."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import BlockCipherAlgorithm, Cipher, CipherAlgorithm
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7


class WrongPasswordError(ValueError):
    """The keystore's own checksum is not that of this password and these bytes."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A secret key's alias, and what its password makes of it: the key's bytes, or ValueError."""

    alias: str
    open: Callable[[str], bytes] = field(repr=False)


def aes_cbc(key: bytes, iv: bytes, text: bytes) -> bytes:
    """AES in CBC mode, its padding removed. Raises ValueError."""
    return _cbc(AES(key), iv, text)


def triple_des_cbc(key: bytes, iv: bytes, text: bytes) -> bytes:
    """Triple DES in CBC mode, its padding removed. Raises ValueError."""
    return _cbc(TripleDES(key), iv, text)


def _cbc(algorithm: CipherAlgorithm, iv: bytes, text: bytes) -> bytes:
    assert isinstance(algorithm, BlockCipherAlgorithm)  # noqa: S101 - both are
    decryptor, padding = Cipher(algorithm, CBC(iv)).decryptor(), PKCS7(algorithm.block_size).unpadder()
    return padding.update(decryptor.update(text) + decryptor.finalize()) + padding.finalize()
