"""What the readers of both kinds of keystore share: ASN.1's DER (X.690), an entry as stored, a wrong password's
error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives.ciphers import BlockCipherAlgorithm, Cipher, CipherAlgorithm
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

INTEGER: Final = 0x02
OCTETS: Final = 0x04
OID: Final = 0x06
BMP_STRING: Final = 0x1E
SEQUENCE: Final = 0x30
SET: Final = 0x31
CONTEXT_0: Final = 0xA0
"""[0], constructed."""


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


@dataclass(frozen=True, slots=True)
class Element:
    """One element: its tag's byte and its content."""

    tag: int
    content: bytes

    def expect(self, tag: int) -> bytes:
        """The content, where the tag is this one. Raises ValueError."""
        if self.tag != tag:
            raise ValueError(f"tag {self.tag:#x} where {tag:#x} must be")
        return self.content

    def children(self, tag: int) -> list[Element]:
        """The elements inside of one with this tag. Raises ValueError."""
        return elements(self.expect(tag))

    def integer(self) -> int:
        """An INTEGER. Raises ValueError."""
        return int.from_bytes(self.expect(INTEGER), "big", signed=True)


def elements(data: bytes) -> list[Element]:
    """All elements of the bytes. Raises ValueError for cut ones, and for lengths that DER does not allow."""
    read: list[Element] = []
    offset = 0
    while offset < len(data):
        element, offset = _element(data, offset)
        read.append(element)
    return read


def only(data: bytes) -> Element:
    """The only element that the bytes are. Raises ValueError."""
    (alone,) = elements(data)
    return alone


def sequence(data: bytes) -> list[Element]:
    """The elements of the one SEQUENCE that the bytes are. Raises ValueError."""
    return only(data).children(SEQUENCE)


def _element(data: bytes, offset: int) -> tuple[Element, int]:
    if offset + 2 > len(data):
        raise ValueError(f"an element ends at {len(data)}")
    tag, length = data[offset], data[offset + 1]
    offset += 2
    if length >= 0x80:
        size = length - 0x80
        if not 1 <= size <= 4:
            raise ValueError(f"a length of {size} bytes")
        length = int.from_bytes(data[offset : offset + size], "big")
        offset += size
    if offset + length > len(data):
        raise ValueError(f"an element of {length} bytes, {len(data) - offset} left")
    return Element(tag, data[offset : offset + length]), offset + length
