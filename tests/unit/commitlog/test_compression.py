"""Compressors: blocks by the book and of other libraries, damaged everywhere, and lengths that lie."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.commitlog.blocks import CODECS, LZ4, decompress
from tailrace_schemas.errors import CorruptError, UnsupportedError
from tests.properties import examples
from tests.unit.commitlog.segments import lz4_block

SNAPPY, DEFLATE, ZSTD, NOOP = "SnappyCompressor", "DeflateCompressor", "ZstdCompressor", "NoopCompressor"


def arrow(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(pyarrow.compress(data, codec=codec, asbytes=True))


# What other libraries than the decoder's write.
WRITERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    LZ4: lz4_block,
    SNAPPY: arrow("snappy"),
    DEFLATE: zlib.compress,
    ZSTD: arrow("zstd"),
    NOOP: bytes,
}
# Compressible, incompressible, and longer than any window of Snappy.
TEXT = b"the quick brown fox, " * 40
NOISE = bytes(range(256)) * 3
LONG = b"".join(number.to_bytes(4, "big") for number in range(40_000))

BY_HAND = [
    # compressor, block, what it holds, why
    (LZ4, "05000000 50 68656c6c6f", b"hello", "one run of literals"),
    (LZ4, "0e000000 14 61 0100 50 6262626262", b"a" * 9 + b"b" * 5, "a match that overlaps itself"),
    (LZ4, "18010000 1f 61 0100 ff 00 50 6262626262", b"a" * 275 + b"b" * 5, "a long match: 19 + 255 + 0 bytes"),
    (SNAPPY, "05 10 68656c6c6f", b"hello", "literals behind their length, a varint"),
    (SNAPPY, "0a 00 61 15 01", b"a" * 10, "a copy with an offset of 11 bits"),
    (SNAPPY, "41 00 61 fe 0100", b"a" * 65, "a copy of 64 with an offset of 16 bits"),
    (DEFLATE, "789c 010500faff 68656c6c6f 062c0215", b"hello", "stored, with its Adler-32"),
    (ZSTD, "28b52ffd 20 05 290000 68656c6c6f", b"hello", "a single segment, a raw block"),
    (ZSTD, "28b52ffd 60 4000 030a00 61", b"a" * 320, "a repeated byte; sizes of two bytes count from 256"),
    (ZSTD, "28b52ffd 00 58 290000 68656c6c6f", b"hello", "no size stated, a window"),
    (NOOP, "68656c6c6f", b"hello", "as it is"),
]


@pytest.mark.parametrize(("compression", "block", "content", "why"), BY_HAND, ids=[case[3] for case in BY_HAND])
def test_blocks_by_hand(compression: str, block: str, content: bytes, why: str) -> None:  # noqa: ARG001
    data = memoryview(bytes.fromhex(block))
    assert decompress(compression, data, len(content)) == content
    for other in (len(content) - 1, len(content) + 1):
        with pytest.raises(CorruptError):
            decompress(compression, data, other)


BROKEN = [
    # compressor, block, the length that its section states, what is said
    (LZ4, "05000000", 5, "LZ4 block of 4 bytes"),
    (LZ4, "05000000 50 68656c6c6f", 6, "states 5 bytes, its section 6"),
    (LZ4, "0e000000 14 61 0200 50 6262626262", 14, "does not decompress"),
    (SNAPPY, "ff", 5, "does not decompress"),
    (SNAPPY, "ffffffffff7f 10 68656c6c6f", 5, "does not decompress"),
    (SNAPPY, "41 00 61 fe 0200", 65, "does not decompress"),
    (DEFLATE, "789c 010500faff 68656c6c6f 062c0216", 5, "does not decompress"),
    (DEFLATE, "789c 010500faff 68656c6c6f 062c02", 5, "does not hold 5 bytes"),
    (DEFLATE, "789c 010500faff 68656c6c6f 062c0215 00", 5, "does not hold 5 bytes"),
    (ZSTD, "28b52ffd 60 0000 020a00 61 000000000000", 256, "Zstd block"),
    (ZSTD, "28b52ffd 20 05 290000 68656c6c6f 0000000000", 5, "Zstd block"),
    (ZSTD, "28b52ffd 20 06 290000 68656c6c6f 0000000000", 5, "states 6 bytes, its section 5"),
    (NOOP, "68656c6c", 5, "uncompressed block of 4 bytes"),
]


@pytest.mark.parametrize(("compression", "block", "size", "words"), BROKEN)
def test_broken_blocks_by_hand(compression: str, block: str, size: int, words: str) -> None:
    with pytest.raises(CorruptError, match=words):
        decompress(compression, memoryview(bytes.fromhex(block)), size)


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("content", [b"a", TEXT, NOISE, LONG], ids=["byte", "text", "noise", "long"])
def test_what_other_libraries_wrote(compression: str, content: bytes) -> None:
    assert decompress(compression, memoryview(WRITERS[compression](content)), len(content)) == content


@pytest.mark.parametrize("compression", CODECS)
def test_every_wrong_length_is_refused(compression: str) -> None:
    block = memoryview(WRITERS[compression](TEXT))
    for size in (*range(1, len(TEXT)), *range(len(TEXT) + 1, 3 * len(TEXT)), 2**31 - 1):
        with pytest.raises(CorruptError):
            decompress(compression, block, size)


@pytest.mark.parametrize("compression", CODECS)
def test_cut_at_every_byte(compression: str) -> None:
    block = memoryview(WRITERS[compression](TEXT))
    for size in range(len(block)):
        with pytest.raises(CorruptError):
            decompress(compression, block[:size], len(TEXT))


@pytest.mark.parametrize("compression", CODECS)
def test_any_bit_flipped(compression: str) -> None:
    """Right bytes or CorruptError for what has a checksum; other blocks may hold other bytes, never more or fewer."""
    whole = WRITERS[compression](TEXT + NOISE)
    size = len(TEXT + NOISE)
    for bit in range(len(whole) * 8):
        block = bytearray(whole)
        block[bit // 8] ^= 1 << bit % 8
        with suppress(CorruptError):
            found = decompress(compression, memoryview(block), size)
            assert len(found) == size
            assert compression != DEFLATE or found == TEXT + NOISE


@pytest.mark.slow
@pytest.mark.parametrize("compression", CODECS)
@given(block=st.binary(max_size=80), size=st.integers(1, 2**31 - 1))
@settings(max_examples=examples(120), deadline=None)
def test_any_bytes_fail_as_promised(compression: str, block: bytes, size: int) -> None:
    with suppress(CorruptError):
        assert len(decompress(compression, memoryview(block), size)) == size


@pytest.mark.parametrize("compression", [LZ4, SNAPPY, DEFLATE, NOOP])
def test_a_length_that_no_block_can_have_takes_no_memory(compression: str) -> None:
    block = bytearray(WRITERS[compression](TEXT))
    size = 2**31 - 1
    if compression == LZ4:
        block[:4] = size.to_bytes(4, "little")
    if compression == SNAPPY:
        block[:2] = b"\xff\xff\xff\xff\x07"
    assert peak(compression, block, size, "cannot hold 2147483647") < 1 << 20


@pytest.mark.slow
def test_a_stream_that_holds_more_than_it_should_is_not_read_to_its_end() -> None:
    bomb = zlib.compress(bytes(64 << 20))
    assert len(bomb) < 70_000
    assert peak(DEFLATE, bomb, 1000, "does not hold 1000 bytes") < 1 << 20
    assert peak(ZSTD, bytearray(WRITERS[ZSTD](bytes(64 << 20))), 1000, "states 67108864 bytes") < 1 << 20
    # Without a stated size, the room that the section has is the limit.
    unstated = bytes.fromhex("28b52ffd 00 58") + bytes.fromhex("020010 61") * 511 + bytes.fromhex("030010 61")
    assert peak(ZSTD, unstated, 1000, "Zstd block") < 1 << 20


def peak(compression: str, block: bytes | bytearray, size: int, words: str) -> int:
    """The most memory that refusing a block takes, in bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError, match=words):
            decompress(compression, memoryview(block), size)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_bytes_behind_a_block_are_refused() -> None:
    for compression, write in WRITERS.items():
        with pytest.raises(CorruptError):
            decompress(compression, memoryview(write(TEXT) + b"\0"), len(TEXT))


@pytest.mark.parametrize("compression", ["", "com.example.Fast", "LZ4HighCompressor"])
def test_other_compressors_are_named(compression: str) -> None:
    with pytest.raises(UnsupportedError, match=f"compressor class {compression} is not read"):
        decompress(compression, memoryview(b"abc"), 3)
