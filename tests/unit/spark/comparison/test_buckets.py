"""Buckets of tokens: each token is in one, however ranges are cut, and digests do not mind the order of rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_spark.comparison.buckets import NO_ROWS, buckets_of, joined, with_rows
from tailrace_spark.snapshot.ranges import TokenRange

RANGES = (TokenRange(MIN_TOKEN, -100), TokenRange(-100, 0), TokenRange(5, 8))


@pytest.mark.slow
@given(st.integers(1, 9), st.integers(MIN_TOKEN, MAX_TOKEN) | st.integers(-105, 10))
def test_a_token_is_in_the_bucket_whose_range_has_it(splits: int, token: int) -> None:
    buckets = buckets_of(reversed(RANGES), splits)
    having = [number for number, part in enumerate(buckets.ranges) if part.start < token <= part.end]
    assert having == ([] if (number := buckets.of(token)) is None else [number])
    assert bool(having) is any(part.start < token <= part.end for part in RANGES)


def test_a_range_has_no_more_buckets_than_tokens() -> None:
    assert buckets_of([TokenRange(5, 8)], 9).ranges == (TokenRange(5, 6), TokenRange(6, 7), TokenRange(7, 8))
    assert buckets_of([TokenRange(0, 10)], 4).ranges == (
        TokenRange(0, 2), TokenRange(2, 5), TokenRange(5, 7), TokenRange(7, 10)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "ranges"),
    [
        ([], []),
        ([1, 0], [(0, 4)]),
        ([0, 2], [(0, 2), (4, 6)]),
        ([2, 3], [(4, 6), (8, 10)]),
        ([3, 1, 2], [(2, 6), (8, 10)]),
    ],
)
def test_neighbours_are_read_as_one_range(numbers: list[int], ranges: list[tuple[int, int]]) -> None:
    buckets = buckets_of([TokenRange(0, 2), TokenRange(2, 4), TokenRange(4, 6), TokenRange(8, 10)], 1)
    assert joined(buckets, numbers) == [TokenRange(*bounds) for bounds in ranges]


@given(
    st.lists(st.integers(0, (1 << 128) - 1), max_size=6).flatmap(
        lambda rows: st.tuples(st.just(rows), st.permutations(rows))
    )
)
def test_digests_of_rows_in_any_order_are_equal(orders: tuple[list[int], list[int]]) -> None:
    digests = []
    for rows in orders:
        digest = NO_ROWS
        for row in rows:
            digest = with_rows(digest, 1, row)
        digests.append(digest)
    assert digests == [with_rows(NO_ROWS, len(orders[0]), sum(orders[0]))] * 2
    assert digests[0][0] == len(orders[0])
