"""Rows as `read` changes: what each has, and what stands for that which CQL does not show."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from tailrace_schemas.avro import Encoder, decode
from tailrace_schemas.change import Change, Deletion, Marker, Op, Origin
from tailrace_schemas.cql.types import CqlType, freeze
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token
from tailrace_spark.rowstate.row import merge, state_of
from tailrace_spark.rowstate.visible import VisibleColumns
from tailrace_spark.snapshot.changes import CHANGE_SCHEMA, GRACE_MICROS, ReadChanges, _list_path, messages, records_of
from tailrace_spark.snapshot.selection import Release, columns_of, selection
from tests.unit.spark.cassandra import Log
from tests.unit.spark.published import schemas_of
from tests.unit.tables import table

ASKED = 1_714_000_000_000_000
ROWS = table({"k": "int"}, {"c": "int"}, static={"s": "text"}, regular={"v": "int", "w": "text"})
EDITS = table({"k": "int"}, regular={"l": "list<int>", "m": "map<text, int>", "t": "set<int>", "u": "addr", "v": "int"})
LONGS, INTS = (CqlType("list", (CqlType(kind),), frozen=True) for kind in ("bigint", "int"))


def changes_of(of: Table, *rows: dict[str, object], release: Release = (5, 0)) -> list[Change]:
    """The changes of a page; a row has values by name, and (name, "writetime" or "ttl") by (name, kind)."""
    selected = selection(columns_of(of, None), release, times=True)
    columns: list[list[bytes | None]] = []
    for item in selected:
        column: list[bytes | None] = []
        for row in rows:
            name = item.column.name if item.kind == "value" else f"{item.kind}({item.column.name})"
            value = row.get(name)
            of_kind = {"value": freeze(item.column.type), "writetime": CqlType("bigint"), "ttl": CqlType("int")}[
                item.kind
            ]
            if item.elements:
                of_kind = LONGS if item.kind == "writetime" else INTS
            column.append(None if value is None else codec(of_kind).encode(value))
        columns.append(column)
    return list(ReadChanges(of, selected, "dc1").changes(columns, ASKED))


def cells(change: Change) -> dict[tuple[str, bytes | None], tuple[int, int | None, int | None, bytes | None]]:
    return {(cell.column.name, cell.path): (cell.written, cell.ttl, cell.expires, cell.value) for cell in change.cells}


def test_a_value_whose_write_time_is_not_told_is_older_than_what_is_written_now() -> None:
    """A frozen collection in releases before CASSANDRA-17628: what is written meanwhile comes by the log."""
    fixed = table({"k": "int"}, regular={"f": "frozen<set<int>>"})
    [change] = changes_of(fixed, {"k": 1, "f": [1, 2]}, release=(4, 0, 4))
    assert [(cell.written, cell.ttl) for cell in change.cells] == [(ASKED - GRACE_MICROS, None)]


@pytest.mark.promise("snapshots.equal")
def test_a_value_whose_write_time_is_not_told_is_newer_than_a_drop_of_its_column() -> None:
    types = {"f": "frozen<set<int>>", "t": "set<int>"}
    again = table({"k": "int"}, regular=types, dropped={name: (of, ASKED - 5) for name, of in types.items()})
    [change] = changes_of(again, {"k": 1, "f": [1], "t": [2]}, release=(4, 0, 4))
    assert VisibleColumns(again).of(state_of(change)) == {"f": [1], "t": [2]}


def test_static_columns_are_one_change_of_their_partition() -> None:
    row = {"s": "static", "writetime(s)": 5}
    changes = changes_of(
        ROWS, {"k": 1, "c": 1, "v": 1, "writetime(v)": 6, **row}, {"k": 1, "c": 2, "v": 2, "writetime(v)": 7, **row},
        {"k": 2, **row}, {"k": 3, "c": 1, "v": 3, "writetime(v)": 8},
    )  # fmt: skip
    assert [(change.static, change.clustering is None, len(change.cells)) for change in changes] == [
        (True, True, 1), (False, False, 1), (False, False, 1), (True, True, 1), (False, False, 1),
    ]  # fmt: skip
    assert {change.op for change in changes} == {Op.READ}
    assert all(change.key is not None and change.token == token(change.key) for change in changes)
    sources = {change.source for change in changes}
    assert [(source.origin, source.seen, source.datacenter) for source in sources if source] == [
        (Origin.SNAPSHOT, ASKED // 1000, "dc1")
    ]


def test_cells_have_their_write_time_and_expire_when_their_seconds_are_over() -> None:
    [change] = changes_of(ROWS, {"k": 1, "c": 1, "v": 1, "writetime(v)": 6, "ttl(v)": 60, "w": "", "writetime(w)": 7})
    assert cells(change) == {
        ("v", None): (6, 60, ASKED // 1_000_000 + 60, struct.pack(">i", 1)),
        ("w", None): (7, None, None, b""),
    }
    assert change.marker is None


def test_a_row_without_a_cell_is_there_by_a_marker_which_a_deletion_under_way_takes() -> None:
    [change] = changes_of(ROWS, {"k": 1, "c": 1})
    assert (change.marker, change.cells) == (Marker(ASKED - GRACE_MICROS), ())
    deleted = Log(ROWS).delete((1,), (1,), ASKED - 1)
    assert VisibleColumns(ROWS).of(merge(state_of(change), state_of(deleted))) is None


def test_elements_and_fields_have_their_own_times_from_5_0_on() -> None:
    [change] = changes_of(
        EDITS,
        {"k": 1, "m": [{"key": "a", "value": 1}, {"key": "b", "value": 2}], "writetime(m)": [5, 6], "ttl(m)": [None, 9],
         "t": [3], "writetime(t)": [7], "u": {"street": "x", "zip": None, "tags": ["q"]}, "writetime(u)": [8, None, 9]},
    )  # fmt: skip
    assert {place: times[:2] for place, times in cells(change).items()} == {
        ("m", b"a"): (5, None), ("m", b"b"): (6, 9), ("t", struct.pack(">i", 3)): (7, None),
        ("u", b"\0\0"): (8, None), ("u", b"\0\2"): (9, None),
    }  # fmt: skip
    assert change.column_deletions == ()


@pytest.mark.parametrize(
    ("release", "name", "until"),
    [
        ((5, 0), "l", 6), ((4, 1), "l", ASKED - 1), ((4, 1), "t", ASKED - GRACE_MICROS - 1),
        ((4, 1), "m", ASKED - GRACE_MICROS - 1),
    ],
)  # fmt: skip
def test_elements_whose_place_or_time_is_not_told_replace_what_was_there_before(
    release: tuple[int, int], name: str, until: int
) -> None:
    value: dict[str, object] = {"l": [7, 8], "t": [7, 8], "m": [{"key": "a", "value": 7}]}
    times: dict[str, object] = {f"writetime({name})": [5, 6]}
    [change] = changes_of(EDITS, {"k": 1, name: value[name], **times}, release=release)
    [deleted] = change.column_deletions
    assert deleted.deletion == Deletion(until, ASKED // 1_000_000)
    assert {cell.written for cell in change.cells} == {until + 1}
    older = Log(EDITS).insert((1,), (), until, **{name: value[name]})
    state = merge(state_of(older), state_of(change))
    shown = VisibleColumns(EDITS).of(state)
    assert shown == {name: value[name]}


def test_elements_that_a_list_gets_later_come_behind_those_that_were_read() -> None:
    [change] = changes_of(EDITS, {"k": 1, "l": list(range(300)), "writetime(l)": [5] * 300})
    paths = [cell.path for cell in change.cells]
    assert len(set(paths)) == 300
    assert VisibleColumns(EDITS).of(state_of(change)) == {"l": list(range(300))}


@pytest.mark.promise("snapshots.equal")
def test_an_element_that_is_appended_while_its_row_is_read_is_there_once() -> None:
    """The answer has what was written after it was asked for; what it has not is newer than all that it has."""
    log, append = Log(EDITS), ASKED + 500
    state = state_of(log.insert((1,), (), 5, l={"=": None, 0: 1}))
    update = log.update((1,), (), append, l={1: 2})
    [cell] = update.cells
    appended = replace(update, cells=(replace(cell, path=_list_path(append, 0)),))
    state = merge(state, state_of(appended))
    for written, value in (([5], [1]), ([5, append], [1, 2])):
        [change] = changes_of(EDITS, {"k": 1, "l": value, "writetime(l)": written})
        assert VisibleColumns(EDITS).of(merge(state, state_of(change))) == {"l": [1, 2]}


def test_what_is_encoded_is_decoded_markers_included() -> None:
    static: dict[str, object] = {"k": 1, "s": "x", "writetime(s)": 5}
    rows = [{**static, "c": 1}, {**static, "c": 2, "v": 2, "writetime(v)": 7}]
    changes, encoder = changes_of(ROWS, *rows), Encoder(ROWS, "t")
    batch = messages(records_of(iter(changes), encoder))
    schemas = schemas_of(encoder)
    assert [decode(value, schemas) for value in batch.column("value").to_pylist()] == changes
    assert batch.column("op").to_pylist() == ["read"] * len(changes)
    assert batch.column("written").to_pylist() == [5, ASKED - GRACE_MICROS, 7]
    assert messages(records_of((), encoder)).schema == CHANGE_SCHEMA


def test_counter_tables_are_refused() -> None:
    counts = replace(table({"k": "int"}, regular={"n": "counter"}), flags=frozenset({"compound", "counter"}))
    with pytest.raises(UnsupportedError, match="has counters: CQL shows totals, and changes have shards"):
        changes_of(counts)
