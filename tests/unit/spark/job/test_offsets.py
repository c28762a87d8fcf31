"""Offsets of micro-batches in the files of Spark's checkpoint."""

from __future__ import annotations

import pytest

from tailrace_spark.job.offsets import Plan, batch_offsets, first_offsets

ABOUT = '{"batchWatermarkMs":0,"batchTimestampMs":1795405126708,"conf":{}}'


def test_offsets_of_a_batch() -> None:
    text = f'v1\n{ABOUT}\n{{"p.shop.plain":{{"0":583,"1":641}},"p.shop.other":{{"0":2}}}}'
    assert batch_offsets(text) == {("p.shop.plain", 0): 583, ("p.shop.plain", 1): 641, ("p.shop.other", 0): 2}


def test_offsets_before_the_first_batch() -> None:
    assert first_offsets('\0v1\n{"p.shop.plain":{"0":5}}') == {("p.shop.plain", 0): 5}


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", f"v1\n{ABOUT}", f"v1\n{ABOUT}\n{{}}\n{{}}"])
def test_files_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="form"):
        batch_offsets(text)


def test_first_offsets_of_another_form_are_refused() -> None:
    with pytest.raises(ValueError, match="form"):
        first_offsets("\0v2\n{}")


def test_a_plan_counts_new_partitions_from_their_beginning_and_no_partition_twice() -> None:
    start = {("a", 0): 10, ("a", 1): 5, ("gone", 0): 7}
    assert Plan(start, {("a", 0): 14, ("a", 1): 2, ("new", 0): 3}).size == 4 + 3


@pytest.mark.parametrize("offsets", ["[]", '{"a":[1]}', '{"a":{"0":null}}', '{"a":{"0":"x"}}', "not JSON"])
def test_offsets_of_another_form_are_refused(offsets: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        batch_offsets(f"v1\n{ABOUT}\n{offsets}")
