"""Rows that are merged without states of objects: what comes of it is what `merge.partition` makes of the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Change
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Delivered, RecordId
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges, gather
from tailrace_spark.merge.partition import MergeResult, PartitionMerge, StoredPartition
from tailrace_spark.merge.row import merges_fast
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.sinks.lake.fast_rows import FastRows, StoredRows
from tailrace_spark.sinks.lake.state import WITH_GONE, fast_state_rows, state_rows, stored_partitions
from tailrace_spark.sinks.lake.visible_rows import LakeRowRenderer
from tests.properties import examples
from tests.support.expiry import expiring
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

AT, BUCKETS, BATCH = 1_000, 4, 7
FOLLOWED = table(
    {"k": "int"}, {"c": "decimal"}, None,
    {"a": "text", "moment": "timestamp", "d": "decimal", "f": "float", "n": "int", "tags": "set<text>", "back": "int"},
    dropped={"gone": ("int", 6), "back": ("int", 6)},
)  # fmt: skip
HAD = table(
    {"k": "int"}, {"c": "decimal"}, None,
    {"a": "text", "moment": "timestamp", "d": "decimal", "f": "float", "n": "int", "tags": "set<text>", "back": "int",
     "gone": "int"},
)  # fmt: skip
State = dict[RowKey, Any]

values = st.fixed_dictionaries(
    {},
    optional={
        "a": st.sampled_from(["", "x", "y"]),
        "moment": st.sampled_from([0, 2**62, None]),
        "back": st.integers(0, 1),
        "d": st.sampled_from(["1.0", "1.00", None]),
        "f": st.sampled_from([0.5, float("inf")]),
        "gone": st.integers(0, 1),
        "n": st.none() | st.integers(0, 3),
        "tags": st.just({"x": True}),
    },
)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Mostly plain ones of few rows, at few times; keys that are equal in other bytes."""
    log, key, row = Log(HAD), (draw(st.integers(1, 2)),), (draw(st.sampled_from(["1", "1.0", "2"])),)
    at, said = draw(st.integers(1, 9)), dict(sorted(draw(values).items()))
    match draw(st.integers(0, 9)):
        case 0:
            return draw(st.sampled_from([log.delete(key, row, at), log.delete_partition(key, at)]))
        case 1:
            return expiring(log.insert(key, row, at, **{n: v for n, v in said.items() if v is not None}), AT + at - 5)
        case number if number < 6 or not said:
            return log.insert(key, row, at, **said)
    return log.update(key, row, at, **said)


batches = st.lists(
    st.lists(st.tuples(changes(), st.none() | st.integers(1, 2)), min_size=1, max_size=6), min_size=1, max_size=4
)


def gathered(batch: Sequence[tuple[Change, int | None]]) -> BatchChanges:
    return gather(
        Delivered(RecordId("t", 0, at), change, None if to is None else Assignment(to, bytes(16)))
        for at, (change, to) in enumerate(batch)
    )


def as_stored(states: State) -> StoredRows:
    """As a state table has them."""
    rows = list(states.values())
    written_as = [list(row["written_as"] or ()) for row in rows]
    starts = [sum(map(len, written_as[:number])) for number in range(len(rows) + 1)]
    names = ("key", "clustering", "state", "generation", "stream_id", "next_expiry")
    keys, clusterings, states_, generations, streams, expiries = ([row[name] for row in rows] for name in names)
    parts = [part for parts in written_as for part in parts]
    return StoredRows(keys, clusterings, states_, generations, streams, expiries, starts, parts)


def put(states: State, shown: State, rows: pa.Table, shows: Sequence[pa.RecordBatch], hidden: Iterable[RowKey]) -> None:
    """Put in place what a merge made, as the tables do."""
    for row in rows.to_pylist():
        row_key = row["key"], row["clustering"]
        if row["gone"]:
            states.pop(row_key, None)
        else:
            states[row_key] = row
    for row_key in hidden:
        shown.pop(row_key, None)
    for row in pa.Table.from_batches(shows, LakeRowRenderer(FOLLOWED, BUCKETS).schema).to_pylist():
        shown[row["__key"], row["__clustering"]] = repr(row)


def merge_as_objects(found: BatchChanges, states: State, shown: State) -> int:
    shows = LakeRowRenderer(FOLLOWED, BUCKETS)
    merged = PartitionMerge(shows, AT).merge(stored_partitions(as_stored(states)), found)
    rows = pa.Table.from_pylist(state_rows(merged.stored, merged.removed, BATCH, BUCKETS), schema=WITH_GONE)
    put(states, shown, rows, [shows.arrow(list(merged.visible.values()))], merged.hidden)
    return merged.rows


def merge_as_plain(found: BatchChanges, states: State, shown: State) -> int:
    """Some partitions after the others, as they come when they are read in parts."""
    shows, plain = LakeRowRenderer(FOLLOWED, BUCKETS), FastRows(FOLLOWED, BUCKETS, len(found.rows))
    known, left = dict[bytes, StoredPartition](), dict[RowKey, RowChanges]()
    for part in range(2):
        stored = as_stored({row_key: row for row_key, row in states.items() if row_key[0][-1] % 2 == part})
        rows = [one for one in found.rows.items() if one[0][0][-1] % 2 == part]
        intricate = {*found.deletions, *found.statics, *stored.intricate(AT)}
        some = plain.merge(rows, stored, intricate)
        known |= stored_partitions(stored, intricate, some)
        left |= some
    merged: MergeResult[list[object]] = PartitionMerge(shows, AT).merge(known, replace(found, rows=left))
    rest = pa.Table.from_pylist(state_rows(merged.stored, merged.removed, BATCH, BUCKETS), schema=WITH_GONE)
    rows = pa.concat_tables([fast_state_rows(plain, BATCH), rest])
    batches = [*shows.plain_arrow(plain, AT), shows.arrow(list(merged.visible.values()))]
    put(states, shown, rows, batches, {*plain.hidden, *merged.hidden})
    return merged.rows + len(plain.keys)


@pytest.mark.promise("delta.current")
@pytest.mark.slow
@settings(max_examples=examples(20), report_multiple_bugs=False)
@given(batches)
def test_states_and_rows_are_those_of_objects(arriving: list[list[tuple[Change, int | None]]]) -> None:
    """Also deletions, what expires, columns that are gone or back."""
    one: tuple[State, State] = {}, {}
    other: tuple[State, State] = {}, {}
    for batch in arriving:
        assert merge_as_plain(gathered(batch), *one) == merge_as_objects(gathered(batch), *other)
        assert one == other


def test_plain_changes_leave_nothing_to_objects() -> None:
    """New rows, rows that are there, those that come again."""
    log, states, shown = Log(FOLLOWED), State(), State()
    first = [(log.insert((k,), ("1",), 5, a="x", n=k), 1) for k in range(4)]
    second = [(log.update((k,), ("1",), 6, a="y"), 1) for k in range(2)] + first[2:]
    for batch, changed in ((first, 4), (second, 2), (second, 0)):
        found, stored = gathered(batch), as_stored(states)
        plain = FastRows(FOLLOWED, BUCKETS, len(found.rows))
        assert plain.merge(found.rows.items(), stored, ()) == {}
        assert len(plain.keys) == changed
        merge_as_plain(gathered(batch), states, shown)
    assert [eval(str(row))["a"] for _, row in sorted(shown.items())] == ["y", "y", "x", "x"]  # noqa: S307 - our repr


def test_bytes_that_are_no_value_are_an_error() -> None:
    """As with states of objects; the one change is then told apart."""
    log = Log(FOLLOWED)
    good = log.insert((1,), ("1",), 5, n=1)
    for name, data in (("n", b"\x01"), ("d", b"\x01"), ("a", b"\xff")):
        cell = replace(log.insert((1,), ("1",), 5, **{name: "1" if name != "n" else 1}).cells[0], value=data)
        with pytest.raises(DecodeError):
            merge_as_plain(gathered([(replace(good, cells=(cell,)), 1)]), {}, {})


def test_tables_whose_rows_show_what_others_say_are_left_to_objects() -> None:
    static = table({"k": "int"}, {"c": "int"}, {"s": "int"}, {"v": "int"})
    counters = table({"k": "int"}, None, None, {"v": "counter"})
    assert [merges_fast(one) for one in (FOLLOWED, static, counters)] == [True, False, False]
