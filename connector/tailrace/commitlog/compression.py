"""The compressors of Cassandra's commit log: one compressed block of a section to its bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import lz4.block

from tailrace_schemas.errors import CorruptError, UnsupportedError

Decompress = Callable[[memoryview, int], bytes]
"""(block, uncompressed length that the section states) -> exactly that many bytes; raises CorruptError."""

# An LZ4 sequence of one byte stands for at most 255 more, so that a damaged length cannot ask for gigabytes.
_LZ4_RATIO: Final = 255


def _lz4(block: memoryview, size: int) -> bytes:
    """LZ4Compressor: the length again, as 4 little-endian bytes, then one raw block (not the LZ4 frame format)."""
    if len(block) < 5:
        raise CorruptError(f"LZ4 block of {len(block)} bytes")
    prefix = int.from_bytes(block[:4], "little")
    # The library takes the length for an upper bound only; Cassandra refuses a block whose two lengths differ.
    if prefix != size:
        raise CorruptError(f"LZ4 block states {prefix} bytes, its section {size}")
    if size > len(block) * _LZ4_RATIO:
        raise CorruptError(f"LZ4 block of {len(block)} bytes cannot hold {size}")
    try:
        data: bytes = lz4.block.decompress(block[4:], uncompressed_size=size)
    except lz4.block.LZ4BlockError as error:
        raise CorruptError(f"LZ4 block does not decompress: {error}") from None
    if len(data) != size:
        raise CorruptError(f"LZ4 block holds {len(data)} bytes, not {size}")
    return data


CODECS: Final[Mapping[str, Decompress]] = {"LZ4Compressor": _lz4}
"""Compressor class (Descriptor.compression) -> its function. A further compressor is one entry here."""


def codec(compression: str) -> Decompress:
    """The function for a compressor class; raises UnsupportedError that names the class."""
    found = CODECS.get(compression)
    if found is None:
        raise UnsupportedError(f"compressor class {compression} is not read (only {', '.join(CODECS)})")
    return found
