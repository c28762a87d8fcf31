"""Serialized partition keys to Cassandra's murmur3 tokens, and tokens to Kafka partitions."""

from __future__ import annotations

from typing import Final

from librt.strings import read_i64_le
from mmh3 import hash64
from mypy_extensions import i64

MIN_TOKEN: Final = -(2**63)
MAX_TOKEN: Final = 2**63 - 1

_MASK: Final = 2**64 - 1
_BITS_32: Final = 0xFFFFFFFF
_HALF: Final = 1 << 31


def word_of(high: i64, low: i64) -> i64:
    """The signed word of its upper 32 bits, signed, and its lower ones.

    For constants of more than 62 bits, which compiled code would keep as objects and take apart at each use.
    """
    return high << 32 | low


def token(key: bytes) -> int:
    """The token of a serialized partition key, as Murmur3Partitioner.getToken of Cassandra computes it.

    The first word, signed, of MurmurHash3 x64 128 with seed 0, with three differences. The bytes of the tail (the last
    `len(key) % 16`) are sign-extended before they are shifted (MurmurHash.hash3_x64_128). The result -2^63 becomes 2^63
    - 1. The empty key, which CQL cannot write, has the minimum token. A single-column key is the column's bytes; a
    composite one is, per component, two bytes of length, the bytes, and 0x00.
    """
    if not key:
        return MIN_TOKEN
    # Without a byte of 0x80 or more in the tail there is nothing to extend, and C code gives the same word.
    word = hash64(key)[0] if key[len(key) & ~15 :].isascii() else sign_extending_hash(key)
    return MAX_TOKEN if word == MIN_TOKEN else word


def sign_extending_hash(key: bytes) -> i64:
    """The first word of MurmurHash3 x64 128 with seed 0, with the tail's bytes sign-extended."""
    length: i64 = len(key)
    h1: i64 = 0
    h2: i64 = 0
    offset: i64 = 0
    while offset + 16 <= length:
        h1 ^= _scramble_first(read_i64_le(key, offset))
        h1 = _add(_multiply(_add(_rotated(h1, 27), h2), 5), 0x52DCE729)
        h2 ^= _scramble_second(read_i64_le(key, offset + 8))
        h2 = _add(_multiply(_add(_rotated(h2, 31), h1), 5), 0x38495AB5)
        offset += 16
    if length > offset + 8:
        h2 ^= _scramble_second(_signed_tail(key, offset + 8, length))
    if length > offset:
        h1 ^= _scramble_first(_signed_tail(key, offset, offset + 8 if length > offset + 8 else length))
    h1 ^= length
    h2 ^= length
    h1 = _add(h1, h2)
    h2 = _add(h2, h1)
    return _add(_finish(h1), _finish(h2))


def partition(token: i64, n: i64) -> i64:
    """The Kafka partition, 0 to n - 1, of a token in a topic of n partitions: equal shares of the ring, in its order.

    The rule of contracts.md 4, ((token + 2^63) * n) >> 64, for every key mode. `n` is at least 1 and below 2^31, as
    Kafka's numbers of partitions are.
    """
    # In halves of the token, as words: the product has more bits than one.
    high = (token >> 32) + _HALF
    low = token & _BITS_32
    return (high * n + ((low * n) >> 32)) >> 32


def first_token(number: int, n: int) -> int:
    """The smallest token of a partition, 0 to n - 1, in a topic of n partitions."""
    return -((-number << 64) // n) - (1 << 63)


# Words are signed, and wrap: on compiled code by themselves, so that _wrapped is never called there.


def _multiply(first: i64, second: i64) -> i64:
    product = first * second
    return product if -1 <= product >> 63 <= 0 else _wrapped(product)


def _add(first: i64, second: i64) -> i64:
    total = first + second
    return total if -1 <= total >> 63 <= 0 else _wrapped(total)


def _shift(word: i64, bits: i64) -> i64:
    shifted = word << bits
    return shifted if -1 <= shifted >> 63 <= 0 else _wrapped(shifted)


def _wrapped(value: int) -> int:
    return ((value + (1 << 63)) & _MASK) - (1 << 63)


def _rotated(word: i64, bits: i64) -> i64:
    # The mask is shifted down, not up: compiled code would take a literal 1 for 32 bits.
    mask = word_of(0x7FFFFFFF, 0xFFFFFFFF)
    return _shift(word, bits) | (word >> (64 - bits)) & (mask >> (63 - bits))


def _scramble_first(word: i64) -> i64:
    return _multiply(_rotated(_multiply(word, _c1()), 31), _c2())


def _scramble_second(word: i64) -> i64:
    return _multiply(_rotated(_multiply(word, _c2()), 33), _c1())


def _c1() -> i64:
    """0x87C37B91114253D5, of MurmurHash3 x64 128."""
    return word_of(0x87C37B91 - 0x100000000, 0x114253D5)


def _c2() -> i64:
    """0x4CF5AD432745937F, of MurmurHash3 x64 128."""
    return word_of(0x4CF5AD43, 0x2745937F)


def _signed_tail(key: bytes, start: i64, end: i64) -> i64:
    """Up to eight bytes, little-endian, each sign-extended before its shift and joined by XOR, as Cassandra does."""
    word: i64 = 0
    shift: i64 = 0
    offset = start
    while offset < end:
        byte: i64 = key[offset]
        if byte > 127:
            byte -= 256
        word ^= byte << shift
        shift += 8
        offset += 1
    return word


def _finish(word: i64) -> i64:
    # 0xFF51AFD7ED558CCD and 0xC4CEB9FE1A85EC53: fmix64 of MurmurHash3.
    word = _multiply(_high(word), word_of(0xFF51AFD7 - 0x100000000, 0xED558CCD))
    word = _multiply(_high(word), word_of(0xC4CEB9FE - 0x100000000, 0x1A85EC53))
    return _high(word)


def _high(word: i64) -> i64:
    """The word with its upper 31 bits mixed in below."""
    return word ^ (word >> 33) & 0x7FFFFFFF
