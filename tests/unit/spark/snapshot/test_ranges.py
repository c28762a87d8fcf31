"""Token ranges: whatever the ring, the estimates and the limits, each token is read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_spark.snapshot.ranges import (
    Estimates,
    Limits,
    Split,
    TokenRange,
    cut,
    deal,
    parse_range,
    parts,
    ring_ranges,
    unwrapped,
)

MEBIBYTE = 1 << 20
TOKENS = st.integers(MIN_TOKEN, MAX_TOKEN)
RINGS = st.sets(TOKENS | st.sampled_from([MIN_TOKEN, MAX_TOKEN, 0, 1]), min_size=1, max_size=40)
LIMITS = st.builds(
    Limits,
    st.integers(20 * MEBIBYTE, 100 * MEBIBYTE),
    st.integers(1, 60),
    st.none() | st.integers(1, 7),
    st.none() | st.integers(1, 5),
)
ROWS = st.tuples(TOKENS, TOKENS, st.integers(0, MEBIBYTE), st.integers(0, 2000))


def covers_once(ranges: Sequence[TokenRange], within: TokenRange) -> bool:
    """Whether the ranges cover all of `within` and no token twice."""
    ordered = sorted(ranges, key=lambda token_range: token_range.start)
    return (
        ordered[0].start == within.start
        and ordered[-1].end == within.end
        and all(lower.end == upper.start for lower, upper in pairwise(ordered))
    )


def owned(ring: set[int], nodes: int) -> list[tuple[TokenRange, tuple[str, ...]]]:
    """The ring's ranges; each has two replicas of so many nodes."""
    order = {token: index for index, token in enumerate(sorted(ring))}
    return [
        (token_range, tuple(dict.fromkeys((f"n{order[token] % nodes}", f"n{(order[token] + 1) % nodes}"))))
        for token_range, token in ring_ranges(ring)
    ]


@given(RINGS)
def test_a_ring_of_any_vnodes_covers_each_token_once_and_its_owner_is_the_next_token(ring: set[int]) -> None:
    ranges = list(ring_ranges(ring))
    assert covers_once([token_range for token_range, _ in ranges], TokenRange())
    for token_range, token in ranges:
        assert token == token_range.end or (token == min(ring) and token_range.end == MAX_TOKEN)
    assert {token for _, token in ranges} >= ring - {MIN_TOKEN}


@given(TOKENS, TOKENS)
def test_a_range_that_wraps_is_two_and_one_from_a_token_to_itself_is_the_ring(start: int, end: int) -> None:
    ranges = unwrapped(start, end)
    width = end - start if start < end else 2**64 - 1 - (start - end)
    assert sum(token_range.width for token_range in ranges) == width
    assert sum(a.shared_width(b) for a in ranges for b in ranges if a is not b) == 0
    assert covers_once(unwrapped(start, start), TokenRange())


@pytest.mark.slow
@pytest.mark.promise("snapshot.limits")
@given(RINGS, st.integers(1, 6), st.lists(ROWS, max_size=20), LIMITS, TOKENS, TOKENS)
def test_pieces_cover_what_is_asked_for_once_and_tasks_have_each_piece_once(
    ring: set[int], nodes: int, rows: list[tuple[int, int, int, int]], limits: Limits, start: int, end: int
) -> None:
    estimates, within = Estimates.of(rows), unwrapped(start, end)
    splits = cut(owned(ring, nodes), estimates, limits, within)
    for limit in within:
        ranges = [split.range for split in splits if split.range.shared_width(limit)]
        assert covers_once(ranges, limit)
    tasks = deal(splits, limits)
    assert Counter(split for task in tasks for split in task) == Counter(splits)
    if limits.at_once is not None:
        assert len(tasks) <= limits.at_once
    if limits.at_once_per_node is not None:
        tasks_by_node = Counter(node for task in tasks for node in {split.replicas[0] for split in task})
        assert max(tasks_by_node.values()) <= limits.at_once_per_node


def test_what_is_left_of_a_ring_of_vnodes_is_cut_by_its_own_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of 50 nodes with 256 vnodes each took a minute between two rounds."""
    vnodes = [(token_range, ("a",)) for token_range in parts(TokenRange(), 2_000)]
    left = tuple([token_range for token_range, _ in vnodes[::2]])
    looks = Counter[str]()

    def looked(self: TokenRange, other: TokenRange) -> int:
        looks["at two ranges"] += 1
        return max(0, min(self.end, other.end) - max(self.start, other.start))

    monkeypatch.setattr(TokenRange, "shared_width", looked)
    assert [split.range for split in cut(vnodes, Estimates(), Limits(1 << 62), left)] == list(left)
    assert looks.total() <= len(vnodes)


@given(RINGS, st.integers(1, 200_000), LIMITS)
def test_no_piece_has_more_bytes_than_the_limit_by_the_estimates(
    ring: set[int], partitions: int, limits: Limits
) -> None:
    rows = [(token_range.start, token_range.end, 1000, partitions) for token_range, _ in ring_ranges(ring)]
    splits = cut(owned(ring, 3), Estimates.of(rows), limits)
    assert all(split.octets <= limits.split_octets * 1.001 or split.range.width == 1 for split in splits)
    assert sum(split.octets for split in splits) == pytest.approx(1000 * partitions * len(rows))


def test_wrong_estimates_cut_a_range_into_ten_thousand_pieces_at_most() -> None:
    splits = cut([(TokenRange(), ("a",))], Estimates.of([(0, 0, 1 << 40, 1 << 20)]), Limits(MEBIBYTE))
    assert len(splits) == 10_000


def test_a_ring_without_estimates_is_cut_into_the_least_number_of_pieces() -> None:
    for ring in ({0}, {-5, 7}, set(range(0, 2**60, 2**55))):
        assert len(cut(owned(ring, 2), Estimates(), Limits(MEBIBYTE, 16))) >= 16


def test_ranges_that_no_node_told_of_count_as_the_others_on_average() -> None:
    estimates = Estimates.of([(0, 1000, 10, 100)])
    assert estimates.octets_of(TokenRange(0, 1000)) == 1000
    assert estimates.octets_of(TokenRange(500, 600)) == 100
    assert estimates.octets_of(TokenRange(900, 1100)) == pytest.approx(200)
    assert estimates.octets_of(TokenRange(5000, 6000)) == pytest.approx(1000)
    assert Estimates().octets_of(TokenRange()) == 0


def test_an_estimate_of_a_range_that_wraps_is_shared_by_its_ends() -> None:
    estimates = Estimates.of([(MAX_TOKEN - 100, MIN_TOKEN + 300, 4, 100)])
    assert estimates.octets_of(TokenRange(MAX_TOKEN - 100, MAX_TOKEN)) == pytest.approx(100)
    assert estimates.octets_of(TokenRange(MIN_TOKEN, MIN_TOKEN + 300)) == pytest.approx(300)


def test_small_pieces_of_a_node_are_read_by_one_task_and_those_of_different_nodes_are_not() -> None:
    limits = Limits(100, 1)
    splits = [Split(TokenRange(10 * n, 10 * n + 10), (f"n{n % 2}",), 30) for n in range(12)]
    tasks = deal(splits, limits)
    assert [len(task) for task in tasks] == [3, 3, 3, 3]
    assert all(len({split.replicas for split in task}) == 1 for task in tasks)


@pytest.mark.parametrize("text", ["", "5", "a,b", "1,2,3", "-9223372036854775809,5", "5,9223372036854775808"])
def test_what_is_no_token_range_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="token_range"):
        parse_range(text)


def test_a_range_without_a_token_is_refused() -> None:
    """A snapshot of it would be done to an unknown part, and its stream ended at the question to which."""
    with pytest.raises(SettingsError, match="has no token in it"):
        parse_range(f"{MAX_TOKEN},{MIN_TOKEN}")


def test_a_token_range_is_written_with_a_comma() -> None:
    assert parse_range("-100, 100") == (TokenRange(-100, 100),)
    assert parse_range("100,-100") == (TokenRange(100, MAX_TOKEN), TokenRange(MIN_TOKEN, -100))
    with pytest.raises(ValueError, match="no range of tokens"):
        TokenRange(5, 5)
