"""Partition and range deletions against a model that keeps every deletion and asks each of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Deletion
from tailrace_schemas.streams import Assignment
from tailrace_spark.rowstate.deletions import PartitionState, RangeDeletion, flatten, merge_partitions, stronger
from tests.unit.spark.changes import assignments

PLACES = [bytes([first, *rest]) for first in range(4) for rest in ([], [0], [255])]
deletions = st.builds(Deletion, st.integers(-3, 3), st.integers(0, 2))
ranges = st.builds(
    RangeDeletion,
    st.sampled_from([b"", *PLACES]),
    st.one_of(st.none(), st.sampled_from(PLACES)),
    deletions,
    assignments,
)
partitions = st.builds(
    lambda deletion, parts, assignment: PartitionState(
        deletion, flatten(parts, deletion), assignment if deletion else None
    ),
    st.one_of(st.none(), deletions),
    st.lists(ranges, max_size=6),
    assignments,
)


def holding(parts: Iterable[RangeDeletion], at: bytes) -> list[RangeDeletion]:
    return [part for part in parts if part.start <= at and (part.end is None or at < part.end)]


def asked(deletion: Deletion | None, parts: list[RangeDeletion], at: bytes) -> Deletion | None:
    """The model: every range that contains the place, and the partition's own; the strongest wins."""
    return reduce(stronger, [part.deletion for part in holding(parts, at)], deletion)


def assigned(parts: Iterable[RangeDeletion], at: bytes) -> Assignment | None:
    """The model: the greatest assignment of the ranges that delete a place as strongly as any."""
    found = holding(parts, at)
    strongest = reduce(stronger, [part.deletion for part in found], None)
    said = [part.assignment for part in found if part.deletion == strongest]
    return max((one for one in said if one is not None), default=None)


@given(st.one_of(st.none(), deletions), st.lists(ranges, max_size=8))
def test_covering_is_what_every_deletion_together_says(deletion: Deletion | None, parts: list[RangeDeletion]) -> None:
    state = PartitionState(deletion, flatten(parts, deletion))
    for place in PLACES:
        assert state.covering(place) == asked(deletion, parts, place)
    assert state.covering(None) == deletion


@given(st.lists(ranges, max_size=8))
def test_each_place_keeps_the_stream_of_what_deleted_it(parts: list[RangeDeletion]) -> None:
    flat = flatten(parts)
    for place in PLACES:
        assert [part.assignment for part in holding(flat, place)] == (
            [assigned(parts, place)] if holding(parts, place) else []
        )


@given(st.lists(ranges, max_size=8), st.randoms(use_true_random=False))
def test_ranges_have_one_form_whatever_their_order(parts: list[RangeDeletion], random: Random) -> None:
    shuffled = list(parts)
    random.shuffle(shuffled)
    assert flatten(shuffled) == flatten(parts) == flatten(flatten(parts))
    flat = flatten(parts)
    for before, after in pairwise(flat):
        assert before.end is not None
        touching = before.end == after.start
        assert before.end < after.start or (touching and replace(before, start=after.start, end=after.end) != after)


@given(partitions, partitions, partitions)
@pytest.mark.slow
def test_merging_partitions_is_a_join(a: PartitionState, b: PartitionState, c: PartitionState) -> None:
    assert merge_partitions(a, b) == merge_partitions(b, a)
    assert merge_partitions(a, merge_partitions(b, c)) == merge_partitions(merge_partitions(a, b), c)
    assert merge_partitions(a, a) == a
