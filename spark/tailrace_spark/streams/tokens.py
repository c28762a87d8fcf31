"""Cassandra's tokens for whole columns of serialized partition keys, by numpy alone."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

_BLOCK: Final = 16
_C1: Final = np.uint64(0x87C37B91114253D5)
_C2: Final = np.uint64(0x4CF5AD432745937F)
_SIGNS: Final = np.uint64(0x8080808080808080)
_ONES: Final = np.uint64(2**64 - 1)
_BYTE: Final = np.uint64(0xFF)


def tokens_of(keys: pa.Array) -> Int64s:
    """The token of each key of an Arrow column of (large) binary, as tailrace_schemas.tokens.token of each.

    Raises ValueError when a key is null. Memory is the column's, once more, and some 100 bytes a row.
    """
    if keys.null_count:
        raise ValueError(f"{keys.null_count} of the keys are null: a partition key has a token, null has none")
    wide = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    _, offset_buffer, data = keys.buffers()
    if not len(keys):
        return np.empty(0, dtype=np.int64)
    offsets = np.frombuffer(offset_buffer, dtype=wide)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    # Words are read whole, over a key's end where it is short: so some bytes stand behind the last.
    padded = np.zeros(last - first + _BLOCK, dtype=np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(data, dtype=np.uint8)[first:last]
    offsets -= first
    # The longest first: those that have another block are then always the first so many.
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    tokens = np.empty(len(keys), dtype=np.int64)
    tokens[order] = _hashed(_Words(padded), offsets[:-1][order], lengths[order])
    tokens[lengths == 0] = MIN_TOKEN
    return tokens


class _Words:
    """The eight bytes from any place on, as a little-endian word."""

    def __init__(self, padded: npt.NDArray[np.uint8]) -> None:
        self._view: UInt64s = np.ndarray((len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))

    def at(self, offsets: Int64s) -> UInt64s:
        return self._view[offsets]

    def tail(self, offsets: Int64s, sizes: Int64s) -> UInt64s:
        """0 to 8 bytes, each sign-extended before its shift and joined by XOR, as Cassandra does.

        A negative byte turns over every bit above it: so a byte is turned over when an odd number below it is negative.
        """
        mask = np.where(sizes == 0, np.uint64(0), _ONES >> ((8 - np.maximum(sizes, 1)) * 8).astype(np.uint64))
        word = self.at(offsets) & mask
        odd = (word & _SIGNS) << np.uint64(1)
        for shift in (8, 16, 32):
            odd ^= odd << np.uint64(shift)
        return word ^ odd * _BYTE


def _hashed(words: _Words, starts: Int64s, lengths: Int64s) -> Int64s:
    """MurmurHash3 x64 128 with seed 0, its first word, of keys that descend by length."""
    h1, h2 = np.zeros((2, len(starts)), dtype=np.uint64)
    blocks = lengths // _BLOCK
    for block in range(int(blocks[0])):
        active = int(np.searchsorted(-blocks, -block))  # how many have more blocks than that
        offsets = starts[:active] + _BLOCK * block
        first, second = h1[:active], h2[:active]
        first ^= _scrambled(words.at(offsets), _C1, 31, _C2)
        first[:] = (_rotated(first, 27) + second) * np.uint64(5) + np.uint64(0x52DCE729)
        second ^= _scrambled(words.at(offsets + 8), _C2, 33, _C1)
        second[:] = (_rotated(second, 31) + first) * np.uint64(5) + np.uint64(0x38495AB5)
    tails, sizes = starts + _BLOCK * blocks, lengths % _BLOCK
    # Of nothing, the second word is 0 and leaves the hash alone; its place may then be beyond the bytes.
    seconds = np.where(sizes > 8, tails + 8, 0)
    h2 ^= _scrambled(words.tail(seconds, np.maximum(sizes - 8, 0)), _C2, 33, _C1)
    h1 ^= _scrambled(words.tail(tails, np.minimum(sizes, 8)), _C1, 31, _C2)
    h1 ^= lengths.astype(np.uint64)
    h2 ^= lengths.astype(np.uint64)
    h1 += h2
    h2 += h1
    tokens: Int64s = (_finished(h1) + _finished(h2)).view(np.int64)
    tokens[tokens == MIN_TOKEN] = MAX_TOKEN
    return tokens


def _rotated(words: UInt64s, bits: int) -> UInt64s:
    return words << np.uint64(bits) | words >> np.uint64(64 - bits)


def _scrambled(words: UInt64s, first: np.uint64, bits: int, second: np.uint64) -> UInt64s:
    return _rotated(words * first, bits) * second


def _finished(words: UInt64s) -> UInt64s:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        words = (words ^ words >> np.uint64(33)) * np.uint64(factor)
    return words ^ words >> np.uint64(33)
