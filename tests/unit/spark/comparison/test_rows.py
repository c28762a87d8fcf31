"""Rows of two sides: how they differ, and what takes away what only the sink has, and nothing that is written later."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change, ColumnDeletion, Deletion, Marker
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_spark.comparison.rows import (
    NO_ROWS,
    ComparedRow,
    Kind,
    RowDigests,
    buckets_of,
    differences,
    removal,
    repair_of,
    row_digest,
    with_rows,
)
from tailrace_spark.merge.stored_row import ROW, STATIC
from tailrace_spark.rowstate.row import RowState, merge
from tailrace_spark.rowstate.visible import visible
from tailrace_spark.snapshot.ranges import TokenRange
from tests.unit.spark.cassandra import Log
from tests.unit.spark.changes import OF_ANY_BYTES, absorbed, row_changes
from tests.unit.spark.rowstate import counters
from tests.unit.spark.sinks.hostile import LONG_NAMES
from tests.unit.tables import table

TABLE = table({"id": "int"}, {"c": "int"}, {"s": "text"}, {"v": "text", "w": "int", "m": "map<text, int>"})
LOG = Log(TABLE)
NOW = 2_000_000_000
"""In seconds, long after all writes, whose times are microseconds."""
RANGES = (TokenRange(MIN_TOKEN, -100), TokenRange(-100, 0), TokenRange(5, 8))


def shown(*states: RowState) -> object:
    """What readers see of all of them together."""
    merged = RowState()
    for part in states:
        merged = merge(merged, part)
    return visible(merged, TABLE, now=NOW)


def put(at: int, **values: object) -> RowState:
    return absorbed(LOG.insert((1,), (1,), at, **values))


def later(change: Change, by: int) -> Change:
    """The same, written so much later, for good."""

    def moved(deletion: Deletion) -> Deletion:
        return replace(deletion, written=deletion.written + by)

    return replace(
        change,
        marker=None if change.marker is None else Marker(change.marker.written + by),
        deletion=None if change.deletion is None else moved(change.deletion),
        cells=tuple(replace(cell, written=cell.written + by) for cell in change.cells),
        column_deletions=tuple(ColumnDeletion(part.column, moved(part.deletion)) for part in change.column_deletions),
    )


@pytest.mark.promise("compare.repairs")
@pytest.mark.slow
@given(st.lists(row_changes(), min_size=1, max_size=4), st.lists(row_changes(), max_size=3))
def test_of_a_row_that_the_source_lacks_only_what_is_written_later_is_seen(
    known: list[Change], changes: list[Change]
) -> None:
    had, written = absorbed(*known), absorbed(*[later(change, 5) for change in changes])
    repaired = merge(merge(had, removal(None, had, NOW)), written)
    assert visible(repaired, OF_ANY_BYTES, now=9) == visible(written, OF_ANY_BYTES, now=9)


@pytest.mark.promise("compare.repairs")
def test_values_that_only_the_sink_has_go_by_their_own_write_times() -> None:
    source = put(5, v="a", m={"x": 1})
    had = absorbed(LOG.insert((1,), (1,), 5, v="b", w=7), LOG.update((1,), (1,), 8, m={"y": 2}))
    gone = removal(source, had, NOW)
    assert shown(source, had, gone) == shown(source, put(5, v="b"))
    written = {(name, path): cell.written for name, part in gone.columns.items() for path, cell in part.cells.items()}
    assert written == {(b"w", None): 5, (b"m", b"y"): 8}
    assert (gone.deletion, gone.marker) == (None, None)


@pytest.mark.promise("compare.repairs")
def test_what_the_source_writes_a_microsecond_later_is_seen() -> None:
    """Though the sink is repaired long after that."""
    source, had = put(5, v="a"), put(5, v="a", w=7, m={"y": 2})
    again = absorbed(LOG.update((1,), (1,), 6, w=8, m={"y": 3}))
    assert shown(had, removal(source, had, NOW), again) == shown(put(5, v="a"), again)
    assert shown(had, removal(None, had, NOW), again) == shown(again)


def test_what_was_deleted_already_is_left_alone() -> None:
    had = absorbed(
        LOG.insert((1,), (1,), 5, w=None), LOG.update((1,), (1,), 6, m={"y": 2}), LOG.update((1,), (1,), 7, m=None)
    )
    assert removal(put(5), had, NOW).empty


def test_counters_and_collections_that_were_read_whole_are_left_alone() -> None:
    """What was read replaces them."""
    read = LOG.insert((1,), (1,), 9, m={"=": "", "x": 1})
    assert removal(absorbed(read), put(5, m={"y": 2}), NOW).empty
    assert removal(RowState(), absorbed(counters.counted(5, counters.Shard(1, 1, 3))), NOW).empty


def test_digests_are_of_what_is_seen() -> None:
    digests = RowDigests(TABLE)
    row, static = (b"k", ROW + b"c"), (b"k", STATIC)
    assert digests.columns(row, put(5, v="a"), NOW) == digests.columns(row, put(9, v="a", w=None), NOW)
    assert digests.columns(row, put(5, v="a"), NOW) != digests.columns(row, put(5, v="b"), NOW)
    assert digests.columns(row, absorbed(LOG.delete((1,), (1,), 5)), NOW) is None
    assert digests.columns(static, absorbed(LOG.static((1,), 5, s="x")), NOW) is not None


def test_rows_of_other_keys_or_values_have_other_digests() -> None:
    columns: list[tuple[bytes | None, ...]] = [(b"a", None), (None, b"a"), (b"a", b""), (None, None), (b"", b"")]
    keys = [(b"k", b"c"), (b"kc", b""), (b"", b"kc"), (b"k", STATIC)]
    digests = {row_digest(key, values) for key in keys for values in columns}
    assert len(digests) == len(keys) * len(columns)
    assert all(0 <= digest < 1 << 128 for digest in digests)


@pytest.mark.promise("compare.finds")
def test_each_kind_of_difference_is_told_with_its_columns() -> None:
    def side(**columns: tuple[bytes | None, ...]) -> dict[tuple[bytes, bytes], ComparedRow]:
        return {(b"k", ROW + name.encode()): ComparedRow(values, 7, (name,)) for name, values in columns.items()}

    source = side(same=(b"a", None, b"b"), missing=(b"a", None, None), other=(b"a", None, b"b"))
    target = side(same=(b"a", None, b"b"), extra=(b"a", None, None), other=(b"a", b"x", b"c"))
    told = {
        item.shown[0]: (item.kind, item.columns, item.newest) for item in differences(TABLE, source, target).values()
    }
    assert told == {
        "missing": (Kind.MISSING, (), 7),
        "extra": (Kind.EXTRA, (), 0),
        "other": (Kind.DIFFERENT, ("v", "w"), 7),
    }
    statics = {(b"k", STATIC): ComparedRow((b"a",), 7, ())}, {(b"k", STATIC): ComparedRow((b"b",), 7, ())}
    [item] = differences(TABLE, *statics).values()
    assert (item.static, item.columns) == (True, ("s",))


def test_a_repair_s_changes_have_places_that_every_store_of_dead_letters_takes() -> None:
    """MySQL's has 255 characters for a topic."""
    places = {
        change.record_id.key for of in LONG_NAMES for change in repair_of(of, [Log(of).delete((1,), (), 5)]).changes
    }
    assert len(places) == len(LONG_NAMES)
    assert max(len(topic) for topic, _, _ in places) == 249


@pytest.mark.slow
@given(st.integers(1, 9), st.integers(MIN_TOKEN, MAX_TOKEN) | st.integers(-105, 10))
def test_a_token_is_in_the_bucket_whose_range_has_it(splits: int, token: int) -> None:
    buckets = buckets_of(reversed(RANGES), splits)
    having = [number for number, part in enumerate(buckets.ranges) if part.start < token <= part.end]
    assert having == ([] if (number := buckets.of(token)) is None else [number])
    assert bool(having) is any(part.start < token <= part.end for part in RANGES)


def test_a_range_has_no_more_buckets_than_tokens() -> None:
    assert buckets_of([TokenRange(5, 8)], 9).ranges == (TokenRange(5, 6), TokenRange(6, 7), TokenRange(7, 8))
    assert buckets_of([TokenRange(0, 10)], 4).ranges == (
        TokenRange(0, 2), TokenRange(2, 5), TokenRange(5, 7), TokenRange(7, 10)
    )  # fmt: skip


@given(
    st.lists(st.integers(0, (1 << 128) - 1), max_size=6).flatmap(
        lambda rows: st.tuples(st.just(rows), st.permutations(rows))
    )
)
def test_digests_of_rows_in_any_order_are_equal(orders: tuple[list[int], list[int]]) -> None:
    digests = []
    for rows in orders:
        digest = NO_ROWS
        for row in rows:
            digest = with_rows(digest, 1, row)
        digests.append(digest)
    assert digests == [with_rows(NO_ROWS, len(orders[0]), sum(orders[0]))] * 2
    assert digests[0][0] == len(orders[0])
