"""Encrypted sections: blocks of cipher text, and the keys for them, to the bytes that were encrypted."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

from tailrace.commitlog.compression import LZ4, decompress
from tailrace.commitlog.descriptor import Descriptor
from tailrace.errors import MissingKeyError, WrongKeyError
from tailrace_schemas.errors import CorruptError, UnsupportedError

_BLOCK: Final = struct.Struct(">ii")
_AES_SIZES: Final = (16, 24, 32)
_AES_BLOCK: Final = 16


@dataclass(frozen=True, slots=True)
class Keys:
    """Raw keys by alias, in lower case as Java's keystores have them; `otherwise` serves every other alias.

    Never shown: not in `repr`, not in an error.
    """

    by_alias: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    otherwise: bytes | None = field(default=None, repr=False)

    def key(self, alias: str) -> bytes | None:
        """The key of an alias, None where there is none."""
        # Java's keystores have their aliases in lower case; the header has them as cassandra.yaml does.
        return self.by_alias.get(alias.lower(), self.otherwise)


NO_KEYS: Final = Keys()
"""What reads everything but encrypted segments."""


def _aes_cbc(key: bytes, iv: bytes) -> Callable[[bytes], bytes]:
    """AES/CBC/PKCS5Padding. Every block is finished by itself and begins with the same vector (CipherFactory)."""
    if len(key) not in _AES_SIZES:
        raise UnsupportedError(f"a key of {len(key)} bytes: AES takes 16, 24 or 32")
    if len(iv) != _AES_BLOCK:
        raise CorruptError(f"segment header: encIV of {len(iv)} bytes, AES/CBC takes 16")
    # EncryptionUtils ends the cipher with each block (doFinal), which sets it back to encIV: nothing chains blocks.
    cipher = Cipher(AES(key), CBC(iv))

    def decrypt(text: bytes) -> bytes:
        decryptor, padding = cipher.decryptor(), PKCS7(_AES_BLOCK * 8).unpadder()
        try:
            return padding.update(decryptor.update(text) + decryptor.finalize()) + padding.finalize()
        except ValueError:
            raise WrongKeyError("encrypted block does not decrypt: a wrong key, or damage") from None

    return decrypt


CIPHERS: Final[Mapping[str, Callable[[bytes, bytes], Callable[[bytes], bytes]]]] = {"AES/CBC/PKCS5Padding": _aes_cbc}
"""Transformation (Descriptor.cipher) -> (key, vector) -> block's cipher text -> its plain text."""


def decrypt_section(descriptor: Descriptor, blocks: memoryview, size: int, keys: Keys) -> bytes:
    """The `size` bytes of a section from its blocks (EncryptionUtils): each encrypted, and LZ4 inside of that.

    Blocks are independent of each other and hold any number of bytes: frames run across their borders. Raises
    UnsupportedError for a cipher that is not read, MissingKeyError and WrongKeyError, CorruptError for anything else.
    """
    decrypt = _decryption(descriptor, keys)
    parts: list[bytes] = []
    decrypted = offset = 0
    while offset < len(blocks):
        if len(blocks) - offset < _BLOCK.size:
            raise CorruptError(f"encrypted section: {len(blocks) - offset} bytes left, too few for a block")
        encrypted, plain_size = _BLOCK.unpack_from(blocks, offset)
        offset += _BLOCK.size
        if not 0 < encrypted <= len(blocks) - offset:
            raise CorruptError(f"encrypted block of {encrypted} bytes, {len(blocks) - offset} left in the section")
        plain = decrypt(bytes(blocks[offset : offset + encrypted]))
        offset += encrypted
        if len(plain) != plain_size:
            # One time in 256 padding comes out right by chance; what is before it hardly ever does.
            raise WrongKeyError(f"encrypted block holds {len(plain)} bytes, not {plain_size}")
        if plain_size < 4:
            raise CorruptError(f"an encrypted block of {plain_size} bytes, too few for its length")
        length = int.from_bytes(plain[:4], "big", signed=True)
        if not 0 <= length <= size - decrypted:
            raise CorruptError(f"encrypted block states {length} bytes, its section {size - decrypted} more")
        # The inside is LZ4 whatever commitlog_compression says (EncryptedSegment).
        parts.append(decompress(LZ4, memoryview(plain)[4:], length))
        decrypted += length
    if decrypted != size:
        raise CorruptError(f"encrypted section holds {decrypted} bytes, not {size}")
    return b"".join(parts)


def _decryption(descriptor: Descriptor, keys: Keys) -> Callable[[bytes], bytes]:
    opened = CIPHERS.get(descriptor.cipher or "")
    if opened is None:
        raise UnsupportedError(f"cipher {descriptor.cipher} is not read (only {', '.join(CIPHERS)})")
    alias, vector = (descriptor.parameters.get(name) for name in ("encKeyAlias", "encIV"))
    if not isinstance(alias, str) or not isinstance(vector, str):
        raise CorruptError("segment header: encCipher without encKeyAlias and encIV")
    key = keys.key(alias)
    if key is None:
        raise MissingKeyError(f"the segment is encrypted, and there is no key for alias {alias!r}")
    try:
        iv = bytes.fromhex(vector)
    except ValueError:
        raise CorruptError("segment header: encIV is not hexadecimal") from None
    return opened(key, iv)
