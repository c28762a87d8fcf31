"""Serialized partition keys to Cassandra's murmur3 tokens, and tokens to Kafka partitions."""

from __future__ import annotations

import struct
from typing import Final

MIN_TOKEN: Final = -(2**63)
MAX_TOKEN: Final = 2**63 - 1

_MASK: Final = 2**64 - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = struct.Struct("<QQ")


def token(key: bytes) -> int:
    """The token of a serialized partition key, as Murmur3Partitioner.getToken of Cassandra computes it.

    MurmurHash3 x64 128 with seed 0, its first word, signed; but the bytes of the tail (the last `len(key) % 16`) are
    sign-extended before they are shifted (MurmurHash.hash3_x64_128), the result -2^63 becomes 2^63 - 1, and the empty
    key, which CQL cannot write, has the minimum token. A single-column key is the column's bytes; a composite one is,
    per component, two bytes of length, the bytes, and 0x00.
    """
    length = len(key)
    if not length:
        return MIN_TOKEN
    h1 = h2 = 0
    tail_at = length & ~15
    for k1, k2 in _BLOCK.iter_unpack(key[:tail_at]):
        h1 ^= _scramble(k1, _C1, 31, _C2)
        h1 = (((h1 << 27 | h1 >> 37) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _scramble(k2, _C2, 33, _C1)
        h2 = (((h2 << 31 | h2 >> 33) + h1) * 5 + 0x38495AB5) & _MASK
    if length > tail_at + 8:
        h2 ^= _scramble(_signed_tail(key[tail_at + 8 :]), _C2, 33, _C1)
    if length > tail_at:
        h1 ^= _scramble(_signed_tail(key[tail_at : tail_at + 8]), _C1, 31, _C2)
    h1 ^= length
    h2 ^= length
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    word = (_finish(h1) + _finish(h2)) & _MASK
    if word == 1 << 63:
        return MAX_TOKEN
    return word - (1 << 64) if word >> 63 else word


def partition(token: int, n: int) -> int:
    """The Kafka partition, 0 to n - 1, of a token in a topic of n partitions: equal shares of the ring, in its order.

    The rule of contracts.md 4, for every key mode. `n` is at least 1.
    """
    return ((token + (1 << 63)) * n) >> 64


def _scramble(word: int, first: int, rotation: int, second: int) -> int:
    word = word * first & _MASK
    return (word << rotation | word >> (64 - rotation)) * second & _MASK


def _signed_tail(tail: bytes) -> int:
    """Up to eight bytes, little-endian, each sign-extended before its shift and joined by XOR, as Cassandra does."""
    word = 0
    for shift, byte in enumerate(tail):
        word ^= (byte - 256 if byte > 127 else byte) << 8 * shift
    return word & _MASK


def _finish(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33
