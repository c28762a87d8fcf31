"""Blocks of a section to the bytes that were written: decrypted by the keys for them, and decompressed."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import cramjam
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

from tailrace.commitlog.descriptor import Descriptor
from tailrace.errors import MissingKeyError, WrongKeyError
from tailrace_schemas.errors import CorruptError, UnsupportedError
from tailrace_schemas.pickling import pickled_by_fields

Fill = Callable[[memoryview, bytearray], int]
"""(block, room for what it holds) -> bytes written; raises cramjam.DecompressionError."""

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
# By the two upper bits of a frame's descriptor: (bytes of the content's size, what is added to it).
_ZSTD_SIZES: Final = ((0, 0), (2, 256), (4, 0), (8, 0))
_BLOCK: Final = struct.Struct(">ii")
_AES_SIZES: Final = (16, 24, 32)
_AES_BLOCK: Final = 16


@dataclass(frozen=True, slots=True)
class Codec:
    """One compressor: `name` for messages, `ratio`, and what turns (block, length) into exactly that many bytes.

    `ratio` bounds what a byte of a block can stand for, so that a damaged length cannot ask for gigabytes.
    """

    name: str
    ratio: int
    decompress: Callable[[memoryview, int], bytes]


def _filled(name: str, fill: Fill, block: memoryview, size: int) -> bytes:
    room = bytearray(size)
    try:
        written = fill(block, room)
    except cramjam.DecompressionError as error:
        raise CorruptError(f"{name} block does not decompress: {error}") from None
    if written != size:
        raise CorruptError(f"{name} block holds {written} bytes, not {size}")
    return bytes(room)


def _lz4(block: memoryview, size: int) -> bytes:
    """LZ4Compressor: the length again, as 4 little-endian bytes, then one raw block (not the LZ4 frame format)."""
    if len(block) < 5:
        raise CorruptError(f"LZ4 block of {len(block)} bytes")
    # LZ4Compressor writes this length little-endian, the only one in the log that is.
    prefix = int.from_bytes(block[:4], "little")
    # Cassandra refuses a block whose two lengths differ.
    if prefix != size:
        raise CorruptError(f"LZ4 block states {prefix} bytes, its section {size}")
    return _filled("LZ4", cramjam.lz4.decompress_block_into, block[4:], size)


def _snappy(block: memoryview, size: int) -> bytes:
    """SnappyCompressor: a raw block, which begins with its length as a varint (not the framed format)."""
    try:
        stated: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CorruptError(f"Snappy block does not decompress: {error}") from None
    if stated != size:
        raise CorruptError(f"Snappy block states {stated} bytes, its section {size}")
    return _filled("Snappy", cramjam.snappy.decompress_raw_into, block, size)


def _deflate(block: memoryview, size: int) -> bytes:
    """DeflateCompressor: one zlib stream (RFC 1950), its Adler-32 verified."""
    stream = zlib.decompressobj()
    try:
        # A byte more than there may be, so that the stream comes to its end, and to its checksum.
        data = stream.decompress(block, size + 1)
    except zlib.error as error:
        raise CorruptError(f"Deflate block does not decompress: {error}") from None
    # Bytes behind the stream's end are damage too: CompressedSegment writes one stream for each section.
    if len(data) != size or not stream.eof or stream.unused_data:
        raise CorruptError(f"Deflate block does not hold {size} bytes")
    return data


def _zstd(block: memoryview, size: int) -> bytes:
    """ZstdCompressor: one Zstandard frame (RFC 8878), whose header states the length of its content, with checksum."""
    stated = _zstd_content(bytes(block[:18]))
    if stated is not None and stated != size:
        raise CorruptError(f"Zstd block states {stated} bytes, its section {size}")
    return _filled("Zstd", cramjam.zstd.decompress_into, block, size)


def _zstd_content(head: bytes) -> int | None:
    """The content's length that a frame header states, None where it states none, or is no such header."""
    if len(head) < 18 or head[:4] != _ZSTD_MAGIC:
        return None
    descriptor = head[4]
    single = bool(descriptor & 0x20)
    length, added = _ZSTD_SIZES[descriptor >> 6]
    if length == 0:
        if not single:
            return None
        length = 1
    # The window's size stands before it unless the whole content is the window; a dictionary's id comes between.
    start = (5 if single else 6) + (0, 1, 2, 4)[descriptor & 3]
    return int.from_bytes(head[start : start + length], "little") + added


def _noop(block: memoryview, size: int) -> bytes:
    """NoopCompressor: the bytes as they are."""
    if len(block) != size:
        raise CorruptError(f"uncompressed block of {len(block)} bytes, not {size}")
    return bytes(block)


LZ4: Final = "LZ4Compressor"

CODECS: Final[Mapping[str, Codec]] = {
    # A byte of a long match stands for 255; a copy of 64 takes three bytes; 258 take two bits; 128 KiB four bytes.
    LZ4: Codec("LZ4", 255, _lz4),
    "SnappyCompressor": Codec("Snappy", 22, _snappy),
    "DeflateCompressor": Codec("Deflate", 1032, _deflate),
    "ZstdCompressor": Codec("Zstd", 32_768, _zstd),
    "NoopCompressor": Codec("uncompressed", 1, _noop),
}
"""Compressor class (Descriptor.compression) -> its codec. A further compressor is one entry here."""


def decompress(compression: str, block: memoryview, size: int) -> bytes:
    """The `size` bytes that a block stands for.

    Raises UnsupportedError that names a compressor class that is not read, CorruptError for a block that is damaged or
    holds another number of bytes. Memory for the result is taken only after the block was found to be long enough.
    """
    codec = CODECS.get(compression)
    if codec is None:
        raise UnsupportedError(f"compressor class {compression} is not read (only {', '.join(CODECS)})")
    # A length has no checksum of its own: this bounds memory by the segment's size before anything is allocated.
    if size > len(block) * codec.ratio:
        raise CorruptError(f"{codec.name} block of {len(block)} bytes cannot hold {size}")
    return codec.decompress(block, size)


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


pickled_by_fields(Keys)


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
