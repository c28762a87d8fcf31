"""The compressors of Cassandra's commit log: one compressed block of a section to its bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import cramjam

from tailrace_schemas.errors import CorruptError, UnsupportedError

Fill = Callable[[memoryview, bytearray], int]
"""(block, room for what it holds) -> bytes written; raises cramjam.DecompressionError."""

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
# By the two upper bits of a frame's descriptor: (bytes of the content's size, what is added to it).
_ZSTD_SIZES: Final = ((0, 0), (2, 256), (4, 0), (8, 0))


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
