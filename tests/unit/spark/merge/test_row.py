"""The fast path of merging gives what merging row states gives, or leaves the row to it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Deletion
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Delivered, RecordId
from tailrace_spark.merge.batch_changes import RowChanges
from tailrace_spark.merge.row import UNCHANGED, fast_insert, fast_merge, is_redelivery, merge_row
from tailrace_spark.rowstate.codec import encode_state
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.sql.row_builder import Renderer
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

TABLE = table({"k": "int"}, {}, None, {"a": "text", "b": "int"}, dropped={"b": ("int", 2), "gone": ("int", 3)})
WIDER = table({"k": "int"}, {}, None, {"a": "text", "b": "int", "gone": "int"})
NAMES = ("a", "b")
Stored = tuple[bytes, int | None, bytes | None]

values = st.fixed_dictionaries(
    {}, optional={"a": st.sampled_from(["", "x", "y", None]), "b": st.integers(0, 1), "gone": st.just(1)}
)
assignments = st.none() | st.builds(Assignment, st.integers(1, 2), st.just(bytes(16)))
floors = st.none() | st.integers(0, 5).map(lambda written: Deletion(written, 0))


@st.composite
def changes(draw: st.DrawFn) -> RowChanges:
    log, at, row = Log(WIDER), draw(st.integers(1, 5)), draw(values)
    change = log.insert((1,), (), at, **row) if draw(st.booleans()) or not row else log.update((1,), (), at, **row)
    return of(change, draw(assignments))


def of(change: Change, assignment: Assignment | None = None) -> RowChanges:
    return RowChanges((), Delivered(RecordId("t", 0, 0), change, assignment))


def stored_of(state: RowState) -> Stored | None:
    if state.empty:
        return None
    generation, stream_id = state.assignment or (None, None)
    return encode_state(state), generation, stream_id


@given(st.lists(changes(), min_size=1, max_size=5), floors)
def test_fast_rows_are_those_of_merged_states(batches: Sequence[RowChanges], floor: Deletion | None) -> None:
    renderer = Renderer(TABLE, NAMES, "sqlite", static=False)
    stored: Stored | None = None
    for batch in batches:
        redelivered = stored is not None and is_redelivery(batch, *stored, floor)
        state, merged = merge_row(stored, batch, floor)
        assert not redelivered or merged is None
        fast = fast_insert(batch, floor) if stored is None else fast_merge(batch, *stored, floor)
        if fast is UNCHANGED:
            assert merged is None
        elif fast is not None:
            assert (fast.encoded, fast.assignment) == (merged, state.assignment)
            assert fast.newest == (state.newest or (None,))[0]
            if fast.cells is not None:
                assert renderer.merged_values(fast.cells) == renderer.values(state, None)
            elif fast.change is not None:
                assert renderer.plain_values(fast.change, fast.newest) == renderer.values(state, None)
        stored = stored_of(state)


def test_takes_the_fast_path() -> None:
    log = Log(WIDER)
    first, second = of(log.insert((1,), (), 1, a="x", b=1)), of(log.update((1,), (), 2, a="y"))
    inserted = fast_insert(first, None)
    assert inserted is not None
    assert fast_merge(first, inserted.encoded, None, None, None) is UNCHANGED
    assert is_redelivery(first, inserted.encoded, None, None, None)
    assert not is_redelivery(first, inserted.encoded, None, None, Deletion(1, 0))
    assert not is_redelivery(first, inserted.encoded, 1, bytes(16), None)
    assert not is_redelivery(second, inserted.encoded, None, None, None)
    merged = fast_merge(second, inserted.encoded, None, None, None)
    assert merged is not None
    assert merged is not UNCHANGED


def test_leaves_several_changes_of_a_row_and_damaged_bytes_to_row_states() -> None:
    log = Log(WIDER)
    several = of(log.insert((1,), (), 1, a="x"))
    several.add(Delivered(RecordId("t", 0, 1), log.insert((1,), (), 2, a="y")))
    assert fast_insert(several, None) is None
    whole = fast_insert(of(log.insert((1,), (), 1, a="x")), None)
    assert whole is not None
    change = of(log.update((1,), (), 2, a="y"))
    for end in range(len(whole.encoded)):
        assert fast_merge(change, whole.encoded[:end], None, None, None) is None
        assert not is_redelivery(change, whole.encoded[:end], None, None, None)
