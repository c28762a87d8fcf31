"""Estimates of rows: exact where samples see everything, near where keys are spread as hashes are."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_spark.snapshot.ranges import SAMPLE_ROWS, Sample, Split, TokenRange, estimate, sample_of, sampled


def cut(count: int) -> list[Split]:
    bounds = [MIN_TOKEN + (MAX_TOKEN - MIN_TOKEN) * index // count for index in range(count + 1)]
    return [Split(TokenRange(*pair), ("a",), 1000.0) for pair in pairwise(bounds)]


def samples_of(splits: list[Split], tokens: list[int]) -> list[Sample]:
    samples = []
    for split in sampled(splits):
        inside = [token for token in tokens if split.range.start < token <= split.range.end]
        samples.append(sample_of(split.range, inside[:SAMPLE_ROWS], is_whole=len(inside) <= SAMPLE_ROWS))
    return samples


def test_a_small_table_is_counted() -> None:
    random = Random(1)
    tokens = sorted(random.randrange(MIN_TOKEN + 1, MAX_TOKEN) for _ in range(150))
    splits = cut(16)
    plan = estimate(splits, 4, samples_of(splits, tokens), 10.0)
    assert (plan.ranges, plan.tasks, plan.rows, plan.octets, plan.seconds) == (16, 4, 150, 16000, 15)


@pytest.mark.slow
@pytest.mark.parametrize("ranges", [1, 7, 64, 1000])
def test_a_large_table_is_estimated_by_its_density(ranges: int) -> None:
    random = Random(ranges)
    tokens = sorted(random.randrange(MIN_TOKEN + 1, MAX_TOKEN) for _ in range(100_000))
    splits = cut(ranges)
    rows = estimate(splits, 1, samples_of(splits, tokens), None).rows
    assert rows == pytest.approx(100_000, rel=0.25)


def test_without_samples_no_rows_are_told() -> None:
    plan = estimate([], 0, [], 5.0)
    assert (plan.rows, plan.seconds) == (None, None)


def test_one_partition_that_fills_a_sample_is_no_division_by_zero() -> None:
    assert sample_of(TokenRange(0, 100), [1] * SAMPLE_ROWS, is_whole=False) == (SAMPLE_ROWS, 1)
