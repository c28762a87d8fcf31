"""The states of plain changes, made without objects, are those that the codec makes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Marker, Op
from tailrace_spark.rowstate.codec import encode_state, newest
from tailrace_spark.rowstate.plain import plain_state
from tailrace_spark.rowstate.row import state_of
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
