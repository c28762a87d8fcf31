"""Tokens of whole columns: Cassandra's own vectors, mmh3 where it is exact, and the scalar function for all keys."""

from __future__ import annotations

import random

import mmh3
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN, token
from tailrace_spark.streams.tokens import tokens_of
from tests.support.tokens import CASES, key_with_words, unsigned_tail

KEYS = st.lists(st.binary(max_size=80), max_size=40)


def _tokens(keys: list[bytes]) -> list[int]:
    found: list[int] = tokens_of(pa.array(keys, pa.binary())).tolist()
    return found


def test_cassandra_vectors() -> None:
    assert _tokens([key for key, _, _ in CASES]) == [expected for _, expected, _ in CASES]


@given(KEYS)
def test_equal_to_the_scalar_function(keys: list[bytes]) -> None:
    assert _tokens(keys) == [token(key) for key in keys]


def test_every_length_with_every_sign_in_the_tail() -> None:
    """Lengths to 64, and each pattern of signs in a tail of up to nine bytes."""
    drawn = random.Random(1)
    keys = [drawn.randbytes(length) for length in range(65) for _ in range(40)]
    keys += [
        bytes(16 * blocks) + bytes(0x80 if signs >> n & 1 else 1 for n in range(size))
        for blocks in (0, 1)
        for size in range(10)
        for signs in range(1 << size)
    ]
    drawn.shuffle(keys)
    assert _tokens(keys) == [token(key) for key in keys]


@given(st.lists(st.binary(min_size=1, max_size=80).map(unsigned_tail), max_size=20))
def test_equals_mmh3_where_sign_extension_changes_nothing(keys: list[bytes]) -> None:
    assert _tokens(keys) == [mmh3.hash64(key, signed=True)[0] for key in keys]


def test_the_minimum_result_becomes_the_maximum_and_the_empty_key_has_the_minimum() -> None:
    assert _tokens([b"", key_with_words(1 << 63, 0), b"", b"123"]) == [MIN_TOKEN, MAX_TOKEN, MIN_TOKEN, CASES[0][1]]
    assert _tokens([]) == []
    assert _tokens([b""]) == [MIN_TOKEN]


@pytest.mark.slow
@given(KEYS, st.integers(0, 40), st.integers(0, 40))
def test_a_slice_is_read_from_its_own_start(keys: list[bytes], start: int, size: int) -> None:
    for kind in (pa.binary(), pa.large_binary()):
        part = pa.array(keys, kind).slice(start, size) if start <= len(keys) else pa.array([], kind)
        assert tokens_of(part).tolist() == [token(key) for key in part.to_pylist()]


def test_null_has_no_token() -> None:
    with pytest.raises(ValueError, match="1 of the keys are null"):
        tokens_of(pa.array([b"a", None], pa.binary()))
