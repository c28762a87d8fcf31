"""The states of plain changes, made without objects, are those that the codec makes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Marker, Op
from tailrace_schemas.errors import TruncatedError
from tailrace_spark.rowstate.codec import encode_state, newest
from tailrace_spark.rowstate.plain import plain_merge, plain_row, plain_state
from tailrace_spark.rowstate.row import RowState, state_of
from tests.unit.spark.cassandra import Log
from tests.unit.spark.changes import PLAIN, row_changes
from tests.unit.tables import table

WIDE = table({"p": "int"}, regular=dict.fromkeys(("a", "b", "c", "d"), "text") | {"n" * 200: "blob"})
TIMES = st.one_of(st.integers(-(2**62), 2**62), st.integers(1_700_000_000_000_000, 1_700_000_000_000_009))


@given(
    st.booleans(),
    TIMES,
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.text(max_size=300)),
    st.one_of(st.none(), st.binary(max_size=20_000)),
)
def test_plain_changes(marker: bool, at: int, values: dict[str, str], blob: bytes | None) -> None:
    log = Log(WIDE)
    named: dict[str, object] = dict(sorted(values.items()))
    if blob is not None:
        named["n" * 200] = blob
    change = (log.insert if marker else log.update)((1,), (), at, **named)
    if not marker and not named:
        assert plain_state(change) is None
        return
    state = state_of(change)
    assert plain_state(change) == (newest(state), encode_state(state))


@given(row_changes(PLAIN))
def test_any_change_is_told_as_it_is_or_not_at_all(change: Change) -> None:
    state = state_of(change)
    assert plain_state(change) in (None, (newest(state), encode_state(state)))


def plain_changes() -> st.SearchStrategy[list[Change]]:
    """Of one row, few times and short values, so that there are ties."""
    one = st.builds(
        lambda marker, at, values: (Log(WIDE).insert if marker else Log(WIDE).update)(
            (1,), (), at, **dict(sorted(values.items()))
        ),
        st.booleans(),
        st.one_of(st.integers(5, 9), st.sampled_from([-(2**62), 2**62])),
        st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.text("xy", max_size=2), min_size=1),
    )
    return st.lists(one, min_size=1, max_size=5)


@given(plain_changes())
def test_plain_changes_merge_as_states_do(changes: list[Change]) -> None:
    state = RowState()
    row = None
    for change in changes:
        plain = plain_state(change)
        assert plain is not None
        row = plain_row(plain[1]) if row is None else plain_merge(row, change, plain[0])
        assert row is not None
        state.absorb(state_of(change))
        assert row.encoded == encode_state(state)
        assert row.newest == newest(state)
        again = plain_row(row.encoded)
        assert again is not None
        assert again.encoded == row.encoded


@given(st.lists(row_changes(PLAIN), min_size=1, max_size=3))
def test_a_state_is_read_as_it_is_or_not_at_all(changes: list[Change]) -> None:
    state = RowState()
    for change in changes:
        state.absorb(state_of(change))
    encoded = encode_state(state)
    row = plain_row(encoded)
    assert row is None or row.encoded == encoded


def test_a_state_that_is_cut_is_not_read() -> None:
    """Wherever it ends, and with bytes behind its end."""
    log = Log(WIDE)
    first, second = plain_state(log.insert((1,), (), 5, a="x", b="y")), log.update((1,), (), 300, b="z")
    assert first is not None
    known = plain_row(first[1])
    assert known is not None
    encoded = plain_merge(known, second, 300).encoded
    for end in range(len(encoded)):
        with suppress(TruncatedError):
            assert plain_row(encoded[:end]) is None
    assert plain_row(encoded + b"\x00") is None


@pytest.mark.parametrize(
    "change",
    [
        Log(WIDE).update((1,), (), 5, a=None),
        Log(WIDE).delete((1,), (), 5),
        replace(Log(WIDE).insert((1,), (), 5, a="x"), marker=Marker(6)),
        replace(Log(WIDE).insert((1,), (), 5, a="x"), marker=Marker(5, 10, 15)),
        replace(Log(WIDE).update((1,), (), 5), op=Op.UPDATE),
    ],
)
def test_others_are_none(change: Change) -> None:
    assert plain_state(change) is None
