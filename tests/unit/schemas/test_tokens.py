"""Tokens against Cassandra's own vectors, a reference of the hash, and mmh3 wherever the two are defined alike."""

from __future__ import annotations

import struct

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN, partition, sign_extending_hash, token
from tests.support.tokens import CASES, key_with_words, unsigned_tail


@pytest.mark.parametrize(("key", "expected", "plain_murmur3"), CASES)
def test_cassandra_vectors(key: bytes, expected: int, plain_murmur3: int | None) -> None:
    assert token(key) == expected
    if plain_murmur3 is not None:
        assert mmh3.hash64(key, signed=True)[0] == plain_murmur3


def test_empty_key_has_the_minimum_token() -> None:
    assert token(b"") == MIN_TOKEN


def int_key(value: int) -> bytes:
    return struct.pack(">q", value)


@given(st.binary(min_size=1, max_size=80).map(unsigned_tail))
def test_equals_mmh3_where_sign_extension_changes_nothing(key: bytes) -> None:
    expected = mmh3.hash64(key, signed=True)[0]
    assert sign_extending_hash(key) == expected
    assert token(key) == (MAX_TOKEN if expected == MIN_TOKEN else expected)


def reference(key: bytes) -> int:
    """MurmurHash3_x64_128 of smhasher, its first word, with the tail as MurmurHash.java of Cassandra reads it."""
    mask, c1, c2 = 2**64 - 1, 0x87C37B91114253D5, 0x4CF5AD432745937F

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & mask

    def finished(word: int) -> int:
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            word = (word ^ word >> 33) * factor & mask
        return word ^ word >> 33

    def word_at(data: bytes) -> int:
        signed = (byte - 256 if byte > 127 else byte for byte in data)
        word = 0
        for index, byte in enumerate(signed):
            word ^= byte << 8 * index & mask
        return word

    blocks, h1, h2 = len(key) // 16, 0, 0
    for block in range(blocks):
        k1, k2 = struct.unpack_from("<QQ", key, 16 * block)
        h1 ^= rotated(k1 * c1 & mask, 31) * c2 & mask
        h1 = (rotated(h1, 27) + h2) * 5 + 0x52DCE729 & mask
        h2 ^= rotated(k2 * c2 & mask, 33) * c1 & mask
        h2 = (rotated(h2, 31) + h1) * 5 + 0x38495AB5 & mask
    tail = key[16 * blocks :]
    h2 ^= rotated(word_at(tail[8:]) * c2 & mask, 33) * c1 & mask
    h1 ^= rotated(word_at(tail[:8]) * c1 & mask, 31) * c2 & mask
    h1, h2 = h1 ^ len(key), h2 ^ len(key)
    h1 = h1 + h2 & mask
    word = finished(h1) + finished(h2 + h1 & mask) & mask
    return word - (1 << 64) if word >> 63 else word


@given(
    st.binary(min_size=1, max_size=80)
    | st.text(min_size=1).map(str.encode)
    | st.integers(-(2**63), 2**63 - 1).map(int_key)
)
def test_every_key_has_the_hash_with_signed_tails(key: bytes) -> None:
    """Whichever of the two ways a key takes."""
    expected = reference(key)
    assert sign_extending_hash(key) == expected
    assert token(key) == (MAX_TOKEN if expected == MIN_TOKEN else expected)


def test_the_minimum_result_becomes_the_maximum() -> None:
    # The 16-byte key whose first word is exactly -2^63, found by running the hash backwards.
    key = key_with_words(1 << 63, 0)
    assert mmh3.hash64(key, signed=True)[0] == MIN_TOKEN
    assert token(key) == MAX_TOKEN


@given(st.integers(MIN_TOKEN, MAX_TOKEN), st.integers(1, 1000))
def test_partition_is_the_share_of_the_ring(value: int, n: int) -> None:
    chosen = partition(value, n)
    assert 0 <= chosen < n
    assert chosen * 2**64 <= (value - MIN_TOKEN) * n < (chosen + 1) * 2**64


@pytest.mark.promise("agent.partition-by-token")
@pytest.mark.parametrize(
    ("value", "n", "expected"),
    [(MIN_TOKEN, 3, 0), (MAX_TOKEN, 3, 2), (-1, 2, 0), (0, 2, 1), (0, 1, 0), (-1, 7, 3), (MAX_TOKEN, 16, 15)],
)
def test_partition_table(value: int, n: int, expected: int) -> None:
    assert partition(value, n) == expected


@given(st.data(), st.integers(1, 2**31 - 1))
def test_partition_is_exact_at_the_borders_of_the_shares(data: st.DataObject, n: int) -> None:
    """The first token of a share and the last of the one before, which differ in their lowest bits alone."""
    share = data.draw(st.integers(1, n)) if n > 1 else 1
    first = -(-(share << 64) // n) - 2**63
    for value in (first, first - 1):
        if MIN_TOKEN <= value <= MAX_TOKEN:
            assert partition(value, n) == ((value + 2**63) * n) >> 64
