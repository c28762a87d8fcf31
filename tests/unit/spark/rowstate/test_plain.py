"""The states of plain changes, made without objects, are those that the codec makes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change
from tailrace_schemas.errors import TruncatedError
from tailrace_spark.rowstate.codec import encode_state, newest
from tailrace_spark.rowstate.plain import plain_merge, plain_newest, plain_state, plain_time
from tailrace_spark.rowstate.row import RowState, state_of
from tests.unit.spark.cassandra import Log
from tests.unit.spark.changes import PLAIN, absorbed, row_changes
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
        assert plain_time(change) is None
        return
    state = state_of(change)
    assert plain_state(change) == (newest(state), encode_state(state))


@given(row_changes(PLAIN))
def test_any_change_is_told_as_it_is_or_not_at_all(change: Change) -> None:
    state, plain = state_of(change), plain_state(change)
    assert plain in (None, (newest(state), encode_state(state)))
    assert plain_time(change) == (None if plain is None else plain[0])


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


@pytest.mark.slow
@given(plain_changes())
def test_plain_changes_merge_as_states_do(changes: list[Change]) -> None:
    state, encoded = RowState(), b""
    for change in changes:
        plain = plain_state(change)
        assert plain is not None
        assert plain_time(change) == plain[0]
        state.absorb(state_of(change))
        if not encoded:
            encoded = plain[1]
            continue
        row = plain_merge(encoded, change, plain[0])
        assert row is not None
        encoded = row.encoded
        assert encoded == encode_state(state)
        assert row.newest == newest(state) == plain_newest(encoded)
        cells = {name: (one.cells[None].written, one.cells[None].value) for name, one in state.columns.items()}
        assert dict(zip(row.names, zip(row.times, row.values, strict=True), strict=True)) == cells


@given(st.lists(row_changes(PLAIN), min_size=1, max_size=3), st.integers(0, 20))
def test_any_state_is_merged_as_it_is_or_not_at_all(changes: list[Change], at: int) -> None:
    state = absorbed(*changes)
    before, log = encode_state(state), Log(changes[0].table)
    more = log.insert((1,), tuple(0 for _ in changes[0].table.clustering), at)
    row = plain_merge(before, more, at)
    state.absorb(state_of(more))
    assert row is None or row.encoded == encode_state(state)


def test_a_state_that_is_cut_is_not_merged() -> None:
    """Wherever it ends, and with bytes behind its end."""
    log = Log(WIDE)
    first, second = plain_state(log.insert((1,), (), 5, a="x", b="y")), log.update((1,), (), 300, b="z")
    assert first is not None
    known = plain_merge(first[1], second, 300)
    assert known is not None
    for end in range(len(known.encoded)):
        with suppress(TruncatedError):
            assert plain_merge(known.encoded[:end], second, 300) is None
    assert plain_merge(known.encoded + b"\x00", second, 300) is None
