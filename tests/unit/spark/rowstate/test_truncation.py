"""Truncations: which changes they took, statements told apart, and what is stored erased once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import TRUNCATED_LATE, Change, Deletion, Op, Origin
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position
from tailrace_spark.rowstate.codec import decode_truncations, encode_truncations
from tailrace_spark.rowstate.truncation import (
    EVERYTHING,
    HostTruncation,
    Truncation,
    TruncationState,
    absorb,
    truncation_of,
)
from tests.unit.spark.cassandra import Log, with_source
from tests.unit.spark.changes import PLAIN

SECOND = 1_000_000
DELAY = 30.0
START = 1_700_000_000 * SECOND
"""A time in microseconds; segments have ids in its milliseconds."""


def at(seconds: float) -> int:
    return START + int(seconds * SECOND)


def told(host: str, seconds: float, offset: int | None = None, *, late: bool = False) -> Truncation:
    """What a host tells of a truncation, with a position in its log or none."""
    upto = None if offset is None else Position(0, 1, offset)
    return Truncation(PLAIN.id, host, at(seconds), upto, late)


def known(*truncations: Truncation) -> TruncationState:
    state = TruncationState()
    for truncation in truncations:
        state, _ = absorb(state, [truncation], DELAY)
    return state


def write(host: str, offset: int, seconds: float, seen: float = 0, segment: int = 1) -> Change:
    change = Log(PLAIN).insert((1,), (1,), at(seconds), v=1)
    position = Position(0, segment, offset)
    return with_source(change, host=host, position=position, seen=0 if not seen else at(seen) // 1000)


def test_a_change_is_gone_by_its_position_whatever_its_write_time() -> None:
    state = known(told("a", 100, 50))
    for seconds in (-1_000, 99, 101, 1_000_000):
        assert state.covers(write("a", 50, seconds), DELAY)
        assert not state.covers(write("a", 51, seconds), DELAY)


@pytest.mark.promise("snapshots.truncated")
def test_a_row_that_was_read_before_a_truncation_is_gone_and_one_that_was_read_later_stays() -> None:
    state = known(told("a", 100, 50))
    for seen, covered in ((99, True), (100 + DELAY, True), (101 + DELAY, False), (0, False)):
        row = with_source(write("a", 1, 1, seen), origin=Origin.SNAPSHOT)
        assert state.covers(row, DELAY) == covered
        assert state.covers(replace(row, op=Op.READ), DELAY) == covered
        assert not TruncationState().covers(row, DELAY)


def test_a_change_from_nowhere_stays() -> None:
    state = known(told("a", 100, 50))
    assert not state.covers(replace(write("a", 1, 1), source=None), DELAY)


@pytest.mark.parametrize(
    ("offset", "seconds", "seen", "covered", "why"),
    [
        (1, 99, 0, True, "older than the statement"),
        (1, 110, 0, True, "this host may have truncated by then, and not told yet"),
        (1, 131, 0, False, "so long after it that the statement failed on this host"),
        (1, 500, 90, True, "written for the future, and seen before the statement"),
        (1, 500, 480, False, "written shortly before it was seen"),
    ],
)
def test_a_host_that_has_not_told_of_the_statement(
    offset: int, seconds: float, seen: float, covered: bool, why: str
) -> None:
    assert known(told("a", 100, 50)).covers(write("b", offset, seconds, seen), DELAY) is covered, why


def test_a_node_that_started_after_the_statement_has_nothing_of_before() -> None:
    segment = at(101) // 1000
    assert not known(told("a", 100, 50)).covers(write("new", 1, 3, segment=segment), DELAY)
    assert known(told("a", 100, 50)).covers(write("old", 1, 3, segment=at(99) // 1000), DELAY)


@pytest.mark.parametrize(
    ("truncations", "erasures", "why"),
    [
        ([told("a", 100, 1)], [True], "one host"),
        (
            [told("a", 100.2, 1), told("b", 100, 9), told("c", 101, 2)],
            [True, False, False],
            "one statement, three hosts",
        ),
        ([told("a", 100, 1), told("a", 100, 1)], [True, False], "the same again"),
        ([told("a", 100, 1), told("a", 110, 2)], [True, True], "two within the ring delay"),
        (
            [told("a", 100, 1), told("a", 105, 2), told("b", 100.1, 7), told("b", 105.1, 8)],
            [True, True, False, False],
            "two within the ring delay, and a host that lags",
        ),
        (
            [told("a", 100, 1), told("b", 500, 1), told("a", 500.1, 2), told("b", 100.1, 0)],
            [True, True, False, False],
            "two statements, each told first by another host; the last has come again",
        ),
        (
            [told("a", 105, 2), told("b", 100.1, 7), told("b", 105.1, 8)],
            [True, False, False],
            "one statement that a host tells of, and another one that only the other saw",
        ),
        ([told("a", 100, 1), told("a", 90, 2)], [True, True], "a clock that was set back"),
    ],
)
def test_what_is_stored_is_erased_once_for_each_statement(
    truncations: list[Truncation], erasures: list[bool], why: str
) -> None:
    state, erased = TruncationState(), []
    for truncation in truncations:
        state, deletion = absorb(state, [truncation], DELAY)
        erased.append(deletion == EVERYTHING)
    assert erased == erasures, why
    together, _ = absorb(TruncationState(), truncations, DELAY)
    assert {one.host: one.upto for one in together.latest} == {one.host: one.upto for one in state.latest}, why


@pytest.mark.parametrize(
    "truncation", [told("a", 100), told("a", 100, 5, late=True)], ids=["without a position", "late"]
)
def test_a_truncation_that_may_stand_behind_what_it_left_erases_by_time(truncation: Truncation) -> None:
    assert absorb(TruncationState(), [truncation], DELAY)[1] == Deletion(at(100), at(100) // SECOND)
    exact = told("b", 99, 7)
    assert absorb(TruncationState(), [truncation, exact], DELAY)[1] == EVERYTHING


def test_without_a_position_changes_are_told_by_their_write_times() -> None:
    state = known(told("a", 100))
    assert state.covers(write("a", 10**6, 100), DELAY)
    assert not state.covers(write("a", 1, 100.5), DELAY)


def test_a_change_that_truncates() -> None:
    log = Log(PLAIN).insert((1,), (1,), 1, v=1)
    change = Change(
        op=Op.TRUNCATE, table=PLAIN, token=0, key=None, deletion=Deletion(5_000_000, 5),
        source=with_source(log, host="h", position=Position(0, 3, 9)).source, upto=Position(0, 3, 4),
    )  # fmt: skip
    assert truncation_of(change) == Truncation(PLAIN.id, "h", 5_000_000, Position(0, 3, 4))
    assert truncation_of(with_source(change, flags=TRUNCATED_LATE)).late
    with pytest.raises(ValueError, match="insert"):
        truncation_of(log)


states = st.builds(
    TruncationState,
    st.lists(
        st.builds(
            HostTruncation,
            st.text(max_size=4),
            st.integers(-(2**63), 2**63 - 1),
            st.none() | st.builds(Position, *[st.integers(-(2**40), 2**40)] * 3),
            st.integers(-(2**63), 2**63 - 1),
        ),
        max_size=4,
    ).map(tuple),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple),
)


@given(states)
def test_states_come_back_from_their_bytes(state: TruncationState) -> None:
    encoded = encode_truncations(state)
    assert decode_truncations(encoded) == state
    for end in range(len(encoded)):
        with pytest.raises(DecodeError):
            decode_truncations(encoded[:end])
