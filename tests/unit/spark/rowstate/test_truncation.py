"""Truncations: one time of several hosts' times, two truncations told apart, nothing erased too early."""

from __future__ import annotations

from functools import reduce
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.errors import DecodeError
from tailrace_spark.rowstate.codec import decode_truncations, encode_truncations
from tailrace_spark.rowstate.row import RowState, state_of
from tailrace_spark.rowstate.truncation import (
    Truncation,
    TruncationState,
    merge_truncations,
    truncation_of,
    truncation_state,
)
from tailrace_spark.rowstate.visible import visible
from tests.unit.spark.cassandra import Log, source
from tests.unit.spark.changes import PLAIN

SECOND = 1_000_000
DELAY = 30.0
records = st.builds(
    Truncation,
    st.just(PLAIN.id),
    st.sampled_from("abc"),
    st.integers(0, 4).map(lambda at: at * 20 * SECOND),
    st.integers(0, 3),
)


def told(*times: tuple[str, float], seen: int = 0) -> TruncationState:
    """What hosts told of, at seconds."""
    said = [truncation_state(Truncation(PLAIN.id, host, int(at * SECOND), seen)) for host, at in times]
    return reduce(merge_truncations, said, TruncationState())


def hides(state: TruncationState) -> float | None:
    covering = state.covering(DELAY)
    return None if covering is None else covering.written / SECOND


@pytest.mark.parametrize(
    ("times", "expected", "why"),
    [
        ([], None, "no truncation"),
        ([("a", 100)], 100, "one host"),
        ([("a", 100.2), ("b", 100), ("c", 100.1)], 100, "the smallest time of one truncation"),
        ([("a", 100), ("b", 100.1), ("a", 500), ("b", 500.1)], 500, "the second one"),
        ([("a", 100), ("b", 100.1), ("a", 500)], 500, "the second one, of which one host has told"),
        ([("a", 100), ("b", 100.1), ("a", 110), ("b", 110.1)], 110, "two within the ring delay"),
        ([("a", 100), ("b", 100.1), ("a", 110)], 100.1, "two within the ring delay, one host has told of the second"),
    ],
)
def test_the_time_that_hides(times: list[tuple[str, float]], expected: float | None, why: str) -> None:
    assert hides(told(*times)) == hides(told(*reversed(times))) == expected, why


@given(*[st.lists(records, max_size=5)] * 3)
def test_merging_truncations_is_a_join(
    first: list[Truncation], second: list[Truncation], third: list[Truncation]
) -> None:
    a, b, c = (
        reduce(merge_truncations, map(truncation_state, said), TruncationState()) for said in (first, second, third)
    )
    assert merge_truncations(a, b) == merge_truncations(b, a)
    assert merge_truncations(a, merge_truncations(b, c)) == merge_truncations(merge_truncations(a, b), c)
    assert merge_truncations(a, a) == a == merge_truncations(a, TruncationState())
    encoded = encode_truncations(a)
    assert decode_truncations(encoded) == a
    for end in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode_truncations(encoded[:end])


def test_rows_are_hidden_at_once_and_erased_a_ring_delay_later() -> None:
    old, new = Log(PLAIN).insert((1,), (1,), 99 * SECOND, v=1), Log(PLAIN).update((1,), (1,), 101 * SECOND, w="new")
    state = RowState()
    for change in (old, new):
        state.absorb(state_of(change))
    first = told(("b", 100.5), seen=7_000)
    assert visible(state, PLAIN, first.covering(DELAY)) == {"w": "new"}
    # Another host's time is smaller, and may show rows again: so nothing is erased before all had the time to tell.
    both = merge_truncations(first, told(("a", 98), seen=9_000))
    assert visible(state, PLAIN, both.covering(DELAY)) == {"v": 1, "w": "new"}
    assert both.erasing(36_999, DELAY) is None
    assert both.erasing(37_000, DELAY) == both.covering(DELAY) == Deletion(98 * SECOND, 98)


def test_a_record_that_comes_again_is_as_old_as_the_first() -> None:
    again = merge_truncations(told(("a", 100), seen=9_000), told(("a", 100), seen=5_000))
    assert again.erasing(35_000, DELAY) is not None


def test_a_change_that_truncates() -> None:
    place = source()
    change = Change(op=Op.TRUNCATE, table=PLAIN, token=0, key=None, deletion=Deletion(5_000_000, 5), source=place)
    assert truncation_of(change) == Truncation(PLAIN.id, place.host, 5_000_000, place.seen)
    with pytest.raises(ValueError, match="insert"):
        truncation_of(Log(PLAIN).insert((1,), (1,), 1))


def test_a_table_made_anew_has_truncations_of_its_own() -> None:
    other = truncation_state(Truncation(UUID(int=9), "b", 1, 1))
    with pytest.raises(ValueError, match="two tables"):
        merge_truncations(told(("a", 1)), other)
    assert truncation_state(Truncation(PLAIN.id, "a", SECOND, 0)) == told(("a", 1))
