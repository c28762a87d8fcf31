"""Mutations to changes: what becomes a change of its own, and in which order. Cases by hand, of the transcoder and of
the oracle that test_transcode.py holds it against."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.changes.transcode import Transcoder
from tailrace.commitlog.model import Mutation, PartitionUpdate, RangeMarker, Row
from tailrace_schemas.avro import Encoder, decode, entry_from_record, schema_records
from tailrace_schemas.change import (
    EXPIRED_TTL,
    SCHEMA_INFERRED,
    UPDATE_BEGINS,
    UPDATE_ENDS,
    Bound,
    Cell,
    Change,
    ColumnDeletion,
    Deletion,
    Marker,
    Op,
    Source,
)
from tests.oracle.split import changes_of
from tests.unit.changes.rows import KEY, SOURCE, TABLE, cell, row
from tests.unit.commitlog.written import Stats, encode
from tests.unit.tables import table

OTHER = replace(TABLE, name="other", id=UUID(int=5))
STATS = Stats(timestamp=9)
"""A microsecond older than the oldest of an update at the most: otherwise that would count as streamed."""


def split_all(*updates: PartitionUpdate, source: Source = SOURCE) -> tuple[Change, ...]:
    """The changes of the transcoder's messages, which are the oracle's to the byte."""
    mutation, tables = Mutation(updates=updates), {update.table.id.bytes: update.table for update in updates}
    encoders = {id: Encoder(table, "p") for id, table in tables.items()}
    headers = [
        (update.table.static, (*update.table.regular, *[dropped.column for dropped in update.table.dropped]))
        for update in updates
    ]
    messages = Transcoder("p").messages(encode(mutation, STATS, headers), 7, tables.get, source)
    expected = changes_of(mutation, source, lambda table: table.cdc)
    assert [message.value for message in messages] == [encoders[c.table.id.bytes].value(c) for c in expected]
    records = [record for encoder in encoders.values() for record in schema_records(encoder, "t")]
    schemas = {id: entry_from_record(id, text) for id, text in records}
    return tuple([decode(message.value, schemas) for message in messages])


def split(*items: Row | RangeMarker, static: Row | None = None, deleted: int | None = None) -> tuple[Change, ...]:
    deletion = None if deleted is None else Deletion(deleted, 9)
    return split_all(PartitionUpdate(table=TABLE, key=KEY, static=static, items=items, deletion=deletion))


def shape(changes: tuple[Change, ...]) -> list[tuple[str, object]]:
    return [
        (c.op.value, "static" if c.static else (c.start, c.end) if c.start else c.clustering and c.clustering[0])
        for c in changes
    ]


def test_a_marker_makes_an_insert_and_none_an_update() -> None:
    changes = split(row("a", cell("v", 10), marker=10), row("b", cell("v", 10)))
    assert [(c.op, c.clustering, c.marker) for c in changes] == [
        (Op.INSERT, (b"a",), Marker(10)),
        (Op.UPDATE, (b"b",), None),
    ]


def test_a_marker_that_never_lived_makes_a_delete() -> None:
    """As a node writes it into a materialized view for a row that leaves; cells are no deletion's."""
    expired = Marker(10, EXPIRED_TTL, 1_700_000_000)
    gone = replace(row("a", cell("v", 12)), marker=expired)
    (change,) = split(gone)
    assert (change.op, change.marker, change.deletion, len(change.cells)) == (Op.DELETE, expired, None, 1)


@pytest.mark.promise("others.delete-and-insert", "others.older-range")
@pytest.mark.parametrize(
    ("why", "changes", "expected"),
    [
        (
            "rows after a partition delete are kept, oldest first",
            split(row("a", cell("v", 12), marker=12), row("b", cell("v", 11)), deleted=10),
            [("delete_partition", None), ("update", b"b"), ("insert", b"a")],
        ),
        (
            "at a tie data stands before deletions, static before rows",
            split(
                row("a", cell("v", 10)),
                row("b", deleted=10),
                static=Row(clustering=(), static=True, cells=(cell("s", 10),)),
            ),
            [("update", "static"), ("update", b"a"), ("delete", b"b")],
        ),
        (
            "a row's own deletion precedes its data, older or not",
            split(row("a", cell("v", 11), marker=11, deleted=10), row("b", cell("v", 10), deleted=12)),
            [("delete", b"a"), ("insert", b"a"), ("delete", b"b"), ("update", b"b")],
        ),
        (
            "a row's deletion and data of one time stay together",
            split(row("a", cell("v", 10), deleted=10), row("b", cell("v", 10))),
            [("delete", b"a"), ("update", b"a"), ("update", b"b")],
        ),
        (
            "the newest cell places a row",
            split(row("a", cell("v", 10), cell("w", 20, bytes(8))), row("b", cell("v", 15))),
            [("update", b"b"), ("update", b"a")],
        ),
    ],
)
def test_order(why: str, changes: tuple[Change, ...], expected: list[tuple[str, object]]) -> None:
    assert shape(changes) == expected, why


@pytest.mark.promise("others.adjacent-ranges")
def test_a_boundary_ends_one_range_and_starts_the_next() -> None:
    first, second = Deletion(9, 9), Deletion(10, 9)
    changes = split(
        RangeMarker(kind=7, values=(b"c",), open=first),
        RangeMarker(kind=2, values=(b"f",), close=first, open=second),
        RangeMarker(kind=6, values=(), close=second),
    )
    assert [(c.deletion, c.start, c.end) for c in changes] == [
        (first, Bound((b"c",), False), Bound((b"f",), False)),
        (second, Bound((b"f",), True), Bound((), True)),
    ]


def test_updates_keep_the_order_of_the_log_and_untracked_tables_are_left_out() -> None:
    """And are not counted."""
    other = replace(OTHER, cdc=False)
    changes = split_all(
        *[
            PartitionUpdate(table=of, key=KEY, items=(row("a", cell("v", at)),))
            for of, at in ((TABLE, 10), (other, 10), (TABLE, 9))
        ]
    )
    assert [(str(c.table), c.cells[0].written, c.source.index, c.source.count) for c in changes if c.source] == [
        ("ks.t", 10, 0, 2),
        ("ks.t", 9, 1, 2),
    ]


def test_the_bounds_of_updates_stand_in_flags_where_the_mutation_has_several() -> None:
    updates = [
        PartitionUpdate(table=of, key=KEY, items=tuple(row(str(n), cell("v", 9)) for n in range(size)))
        for of, size in ((TABLE, 2), (OTHER, 3), (TABLE, 1))
    ]
    unsure = replace(SOURCE, flags=SCHEMA_INFERRED)
    sources = [c.source for c in split_all(*updates, source=unsure) if c.source]
    assert [source.flags for source in sources] == [1, 1 | UPDATE_ENDS, 1 | UPDATE_BEGINS, 1, 1 | UPDATE_ENDS, 3]
    assert [(source.begins_update, source.ends_update) for source in sources] == [
        (True, False), (False, True), (True, False), (False, False), (False, True), (True, True),
    ]  # fmt: skip
    alone = [c.source for c in split(row("a", cell("v", 10)), row("b", cell("v", 10))) if c.source]
    assert [(one.flags, one.begins_update, one.ends_update) for one in alone] == [(0, True, False), (0, False, True)]


def test_a_collection_deletion_alone_is_an_update() -> None:
    column = next(c for c in TABLE.columns if c.name == "m")
    (change,) = split(Row(clustering=(b"a",), column_deletions=(ColumnDeletion(column, Deletion(9, 9)),)))
    assert (change.op, change.column_deletions) == (Op.UPDATE, (ColumnDeletion(column, Deletion(9, 9)),))


def test_a_row_of_dropped_cells_alone_makes_no_change_but_counts_in_no_digest() -> None:
    with_dropped = table({"pk": "int"}, None, None, {"v": "text"}, dropped={"gone": ("int", 50)})
    gone = Cell(with_dropped.dropped[0].column, None, 10, None, None, b"\0\0\0\1")
    update = PartitionUpdate(table=with_dropped, key=KEY, items=(Row(clustering=(), cells=(gone,)),))
    assert split_all(update) == ()


def test_an_empty_row_makes_no_change() -> None:
    assert split(Row(clustering=(b"a",))) == ()
