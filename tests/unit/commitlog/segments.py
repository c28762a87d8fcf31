"""Segments made by the book, for cases that no recorded one has."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import lz4.block

from tailrace.commitlog.descriptor import Descriptor


def descriptor(
    *,
    version: int = 7,
    segment: int = 5,
    compression: str | None = None,
    parameters: Mapping[str, object] | None = None,
    size: int = 20,
) -> Descriptor:
    """A descriptor as if read."""
    return Descriptor(
        version=version,
        id=segment,
        compression=compression,
        parameters=parameters or {},
        header_size=size,
        checksum=0,
    )


def be32(value: int) -> bytes:
    """The low 32 bits, big-endian."""
    return (value & 0xFFFFFFFF).to_bytes(4, "big")


def marker(segment: int, at: int, following: int) -> bytes:
    """A sync marker that stands at `at`."""
    return be32(following) + be32(zlib.crc32(be32(segment) + be32(segment >> 32) + be32(at)))


def frame(payload: bytes) -> bytes:
    size = be32(len(payload))
    return size + be32(zlib.crc32(size)) + payload + be32(zlib.crc32(size + payload))


def lz4_block(data: bytes) -> bytes:
    """What LZ4Compressor writes."""
    block: bytes = lz4.block.compress(data, store_size=False)
    return len(data).to_bytes(4, "little") + block


def segment_of(segment: int, *contents: bytes, head: int = 20) -> bytes:
    """`head` zero bytes for the header, then sections with the given bytes, markers in front."""
    data = bytes(head)
    for content in contents:
        data += marker(segment, len(data), len(data) + 8 + len(content)) + content
    return data
