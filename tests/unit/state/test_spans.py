"""Spans of segments against sets of ids."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.state.spans import ids_of, spans, united, without

IDS = st.sets(st.integers(0, 40))


@given(IDS, IDS)
def test_spans_are_sets_of_ids(some: set[int], others: set[int]) -> None:
    """Against Python's own sets."""
    assert ids_of(spans(some)) == some
    assert ids_of(united(spans(some), spans(others))) == some | others
    assert united(spans(some), spans(others)) == spans(some | others)
    assert ids_of(without((5, 30), spans(some))) == set(range(5, 31)) - some
