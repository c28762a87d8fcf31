"""Estimates of rows: exact where samples see everything, near where keys are spread as hashes are."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_spark.snapshot.ranges import SAMPLE_ROWS, Piece, Sample, TokenRange, estimate, sample_of, sampled


def cut(count: int) -> list[Piece]:
    bounds = [MIN_TOKEN + (MAX_TOKEN - MIN_TOKEN) * index // count for index in range(count + 1)]
    return [Piece(TokenRange(*pair), ("a",), 1000.0) for pair in pairwise(bounds)]


def samples_of(pieces: list[Piece], tokens: list[int]) -> list[Sample]:
    samples = []
    for piece in sampled(pieces):
        inside = [token for token in tokens if piece.range.start < token <= piece.range.end]
        samples.append(sample_of(piece.range, inside[:SAMPLE_ROWS], is_whole=len(inside) <= SAMPLE_ROWS))
    return samples


def test_a_small_table_is_counted() -> None:
    random = Random(1)
    tokens = sorted(random.randrange(MIN_TOKEN + 1, MAX_TOKEN) for _ in range(150))
    pieces = cut(16)
    plan = estimate(pieces, 4, samples_of(pieces, tokens), 10.0)
    assert (plan.ranges, plan.tasks, plan.rows, plan.octets, plan.seconds) == (16, 4, 150, 16000, 15)


@pytest.mark.slow
@pytest.mark.parametrize("ranges", [1, 7, 64, 1000])
def test_a_large_table_is_estimated_by_its_density(ranges: int) -> None:
    random = Random(ranges)
    tokens = sorted(random.randrange(MIN_TOKEN + 1, MAX_TOKEN) for _ in range(100_000))
    pieces = cut(ranges)
    rows = estimate(pieces, 1, samples_of(pieces, tokens), None).rows
    assert rows == pytest.approx(100_000, rel=0.25)


def test_without_samples_no_rows_are_told() -> None:
    plan = estimate([], 0, [], 5.0)
    assert (plan.rows, plan.seconds) == (None, None)


def test_one_partition_that_fills_a_sample_is_no_division_by_zero() -> None:
    assert sample_of(TokenRange(0, 100), [1] * SAMPLE_ROWS, is_whole=False) == Sample(SAMPLE_ROWS, 1)
