"""Pages to records by plans, held against the way by changes and the Avro library: byte for byte the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.avro import Encoder
from tailrace_schemas.change import Op
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import CorruptError, TruncatedError
from tailrace_schemas.table import Table
from tailrace_spark.snapshot.changes import ReadChanges, TaskRecords, records_of
from tailrace_spark.snapshot.page import ROW_BITS, PageColumns, Records, read_columns, row_count, writes_pages_of
from tailrace_spark.snapshot.reading import Page
from tailrace_spark.snapshot.selection import Release, Selected, columns_of, selection
from tests.unit.spark.cassandra import Log
from tests.unit.spark.changes import PLAIN
from tests.unit.spark.snapshot.pages import page_of
from tests.unit.spark.snapshot.tables import ALONE, EDITS, ROWS, WIDE
from tests.unit.tables import table

ASKED = 1_714_000_000_000_000
LOG = Log(PLAIN)
FIELDS = ("tokens", "written", "ttl", "expires", "digests", "keys", "values", "numbers")


def values_of(item: Selected) -> st.SearchStrategy[bytes | None]:
    if item.kind == "writetime":
        return st.integers(0, 2**50).map(codec(CqlType("bigint")).encode)
    if item.kind == "ttl":
        return st.none() | st.integers(1, 10**6).map(codec(CqlType("int")).encode)
    kind = item.column.type.kind
    known: dict[str, st.SearchStrategy[Any]] = {
        "int": st.integers(0, 3), "text": st.sampled_from(["", "a", "é"]), "double": st.floats(allow_nan=False),
    }  # fmt: skip
    data: st.SearchStrategy[bytes | None] = st.sampled_from(
        {
            "blob": [b"", b"\0\xff"], "decimal": [b"\0\0\0\2\x7f", b""], "timestamp": [b"\0" * 8, b"\x7f" * 8],
            "uuid": [b"\1" * 16, b"\2" * 16], "list": [b"\0\0\0\1\0\0\0\4\0\0\0\7"], "inet": [b"\x7f\0\0\1"],
            "varint": [b"\x80", b""],
        }.get(kind, [b""])
    )  # fmt: skip
    if kind in known:
        data = known[kind].map(codec(item.column.type).encode)
    return data


def rows_of(of: Table, selected: tuple[Selected, ...]) -> st.SearchStrategy[list[list[bytes | None]]]:
    """Rows with and without cells; a partition of static columns alone has no clustering."""
    key = {column.name for column in of.partition_key}
    clustering = {column.name for column in of.clustering}
    strategies = [
        values_of(item) if item.column.name in key | clustering else st.none() | values_of(item) for item in selected
    ]

    @st.composite
    def rows(draw: st.DrawFn) -> list[list[bytes | None]]:
        made = []
        for _ in range(draw(st.integers(0, 6))):
            row = [draw(strategy) for strategy in strategies]
            if draw(st.integers(0, 3)) == 0 and clustering:
                row = [None if item.column.name in clustering else value
                       for item, value in zip(selected, row, strict=True)]  # fmt: skip
            made.append(row)
        return made

    return rows()


@pytest.mark.slow
@pytest.mark.parametrize("of", [ROWS, WIDE, ALONE], ids=["static", "composite", "no clustering"])
@pytest.mark.parametrize("release", [(5, 0), (4, 0, 4)])
@given(data=st.data())
def test_a_page_by_plans_is_the_page_by_changes(of: Table, release: Release, data: st.DataObject) -> None:
    assert writes_pages_of(of)
    selected = selection(columns_of(of, None), release, times=True)
    encoder = Encoder(of, "t")
    by_plans, by_changes = TaskRecords(of, selected, encoder, "dc1"), ReadChanges(of, selected, "dc1")
    for number in range(2):  # the second page goes on in the first one's last partition
        rows = data.draw(rows_of(of, selected))
        page = PageColumns(page_of(rows), len(selected))
        requested_at = ASKED + number
        written = by_plans.of(Page(page, 0, None, requested_at))
        other = records_of(by_changes.changes(read_columns(*page), requested_at), encoder)
        for name in FIELDS:
            assert getattr(written, name) == getattr(other, name), name


def test_a_page_that_is_cut_anywhere_is_told() -> None:
    selected = selection(columns_of(ROWS, None), (5, 0), times=True)
    row: list[bytes | None] = [b"\0\0\0\1" if item.kind != "writetime" else b"\0" * 8 for item in selected]
    whole = page_of([row, row])
    for size in range(4, len(whole)):
        with pytest.raises((TruncatedError, CorruptError)):
            TaskRecords(ROWS, selected, Encoder(ROWS, "t"), "").of(
                Page(PageColumns(whole[:size], len(selected)), 0, None, ASKED)
            )
    with pytest.raises(TruncatedError):
        row_count(whole[:3])


def test_collections_and_counters_go_by_way_of_changes() -> None:
    assert not writes_pages_of(EDITS)
    assert not writes_pages_of(replace(table({"k": "int"}, regular={"n": "counter"}), flags=frozenset({"counter"})))


@pytest.mark.slow
@pytest.mark.promise("snapshots.once")
def test_a_row_has_one_number_whatever_it_says_and_others_have_others() -> None:
    def numbers(*changes: Any) -> list[int]:
        return records(*[replace(change, op=Op.READ) for change in changes]).numbers

    def records(*changes: Any) -> Records:
        return records_of(changes, Encoder(PLAIN, "t"))

    first = LOG.insert((1,), (2,), 1000, v=1)
    [number, again] = numbers(first, LOG.insert((1,), (2,), 9000, v=7))
    assert number == again < 1 << ROW_BITS
    assert len(set(numbers(*[LOG.insert((key,), (row,), 1, v=1) for key in range(50) for row in range(50)]))) == 2500
    assert numbers(replace(first, static=True, clustering=None)) != numbers(replace(first, clustering=()))
