"""DDL that real nodes logged, to definitions; and what Cassandra takes of several writes to a row of system_schema."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.commitlog.model import Mutation, PartitionUpdate, RangeMarker, Row
from tailrace.commitlog.mutation import decode_mutation
from tailrace.history.rows import KeyedRow, SchemaChange, SchemaRows, definitions_of
from tailrace.history.written import rows_by_table_of
from tailrace_schemas.change import Cell, Deletion, Marker
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table import Table
from tests.support.schema import rows_of
from tests.unit import ddl
from tests.unit.ddl import NOW, SCHEMA, alter, create, drop, drop_keyspace
from tests.unit.tables import table

RECORDED = Path(__file__).parents[2] / "fixtures" / "ddl"
TABLES = {one.id: one for one in SCHEMA.values()}
ORDERS = table({"id": "int"}, {"at": "timestamp desc"}, {"s": "text"}, {"v": "text", "home": "addr"}, name="orders")
NOTES = replace(table({"id": "text"}, name="notes", table_id=UUID(int=2)), cdc=False)


@dataclass(frozen=True)
class Step:
    """A recorded statement, and what its mutations did."""

    statement: str
    change: SchemaChange
    rows: SchemaRows


@cache
def recorded(release: str) -> tuple[Step, ...]:
    """The recorded statements of a release, one after the other."""
    rows, steps = SchemaRows(), list[Step]()
    with gzip.open(RECORDED / f"{release}.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    for line in lines:
        if "statement" in line:
            steps.append(Step(line["statement"], SchemaChange(), rows))
        else:
            mutation = decode_mutation(bytes.fromhex(line["payload"]), line["version"], TABLES.get)
            rows, change = rows.apply(mutation)
            steps[-1] = Step(steps[-1].statement, change, rows)
    return tuple(steps)


def columns(table: Table) -> str:
    """Key, statics and others, each with its type."""
    return ", ".join(f"{column.name} {column.type}" for column in (*table.key, *table.columns))


ORDERS_0 = "id int, at timestamp, s text, home addr, old frozen<addr>, v text"
ORDERS_1 = ORDERS_0 + ", w int"
ORDERS_2 = ORDERS_1.replace("id int", "number int")


@pytest.mark.parametrize("release", ["4.0", "4.1", "5.0", "6.0"])
@pytest.mark.parametrize(
    ("beginning", "expected", "cdc", "dropped"),
    [
        ("CREATE KEYSPACE", [], [], []),
        ("CREATE TYPE", [], [], []),
        ("CREATE TABLE shop.orders (id", [ORDERS_0], [True], []),
        ("CREATE TABLE shop.notes", ["id text, v blob"], [False], []),
        ("ALTER TABLE shop.orders ADD", [ORDERS_1], [True], []),
        ("ALTER TABLE shop.orders DROP", [ORDERS_0], [True], []),
        ("ALTER TABLE shop.orders RENAME", [ORDERS_2], [True], []),
        ("ALTER TYPE shop.addr ADD", [ORDERS_2], [True], []),
        ("ALTER TYPE shop.addr RENAME", [ORDERS_2], [True], []),
        ("ALTER TABLE shop.orders WITH cdc = false", [ORDERS_2], [False], []),
        ("ALTER TABLE shop.orders WITH cdc = true", [ORDERS_2], [True], []),
        ("ALTER TABLE shop.notes WITH comment", [], [], []),
        ("DROP TABLE", [], [], ["shop.orders"]),
        ("CREATE TABLE shop.orders (v", ["v text, id int"], [True], []),
        ("DROP KEYSPACE", [], [], ["shop.notes", "shop.orders"]),
    ],
)
def test_what_a_statement_defines(
    release: str, beginning: str, expected: list[str], cdc: list[bool], dropped: list[str]
) -> None:
    """As each release logs it: exactly the tables whose definition changed, and those that are gone."""
    found = [step for step in recorded(release) if step.statement.startswith(beginning)]
    assert found
    for step in found:
        change = step.change
        assert [columns(one) for one in change.defined] == expected
        assert [one.cdc for one in change.defined] == cdc
        assert [str(one) for one in change.dropped] == dropped
        assert change.problems == ()


@pytest.mark.parametrize("release", ["4.0", "4.1", "5.0", "6.0"])
def test_details_of_definitions(release: str) -> None:
    """Order, dropped columns with their time, fields of types inside of tables, a new id after DROP and CREATE."""
    defined = [one for step in recorded(release) for one in step.change.defined if one.name == "orders"]
    created, added, dropped, readded, _, field, renamed, *_, again = defined
    assert [column.descending for column in created.clustering] == [True]
    assert (added.dropped, [d.column.name for d in dropped.dropped]) == ((), ["w"])
    assert readded.dropped == dropped.dropped
    assert dropped.dropped[0].dropped_at > 1_700_000_000_000_000
    assert dropped.dropped[0].dropped_at % 1000 == 0
    homes = [[column.type.fields for column in one.regular if column.name == "home"] for one in (added, field, renamed)]
    assert homes == [[("street", "zip")], [("street", "zip", "country")], [("street", "postcode", "country")]]
    assert again.id != created.id
    assert {one.id for one in defined[:-1]} == {created.id}


@pytest.mark.slow
@pytest.mark.parametrize("release", ["4.0", "4.1", "5.0", "6.0"])
def test_a_base_and_the_log_behind_it_are_as_the_whole_log(release: str) -> None:
    """Begun at any statement with the rows there, as our history keeps them: the same definitions from there on.

    Types that no table uses yet are not kept, but read of the cluster.
    """
    steps = recorded(release)
    for start, known in enumerate(steps):
        names = sorted(known.rows.definitions)
        rows = SchemaRows().with_base([row for name in names for row in known.rows.rows(name)], read=False)
        assert rows.definitions == known.rows.definitions
        rows = rows.with_base(known.rows.rows_and_types(("shop", "")), read=True)
        with gzip.open(RECORDED / f"{release}.jsonl.gz", "rt") as file:
            lines = [json.loads(line) for line in file]
        number = -1
        for line in lines:
            number += "statement" in line
            if number > start and "payload" in line:
                rows, change = rows.apply(decode_mutation(bytes.fromhex(line["payload"]), line["version"], TABLES.get))
                assert change == steps[number].change
                assert rows.definitions == steps[number].rows.definitions


def applied(*payloads: bytes, rows: SchemaRows | None = None) -> tuple[SchemaRows, list[SchemaChange]]:
    """Mutations one after the other."""
    rows, changes = rows or SchemaRows(), list[SchemaChange]()
    for payload in payloads:
        rows, change = rows.apply(decode_mutation(payload, 8, TABLES.get))
        changes.append(change)
    return rows, changes


def test_several_tables_in_one_mutation() -> None:
    """As one that another node sends: each is defined."""
    both = [row for one in (ORDERS, NOTES) for row in rows_of(one)]
    rows, (change,) = applied(ddl.mutation("ks", both))
    assert {str(one): one for one in change.defined} == {"ks.orders": ORDERS, "ks.notes": NOTES}
    wider = replace(ORDERS, cdc=False)
    rows, (change,) = applied(ddl.mutation("ks", rows_of(wider), rows_of(NOTES), NOW + 1), rows=rows)
    assert (change.defined, change.dropped) == ((wider,), (NOTES,))
    assert rows.definitions == {("ks", "orders"): wider}


@pytest.mark.parametrize("older_first", [True, False])
def test_the_newer_write_counts_whatever_came_first(older_first: bool) -> None:
    """A stale node sends what it has: nothing old wins over anything new."""
    off = replace(ORDERS, cdc=False)
    first, second = alter(None, ORDERS, NOW), alter(ORDERS, off, NOW + 10)
    rows, _ = applied(*((first, second) if older_first else (first, second, first)))
    assert rows.definitions["ks", "orders"] == off


def test_at_the_same_time_a_deletion_counts_and_then_the_larger_value() -> None:
    """Cells.reconcile: tombstone over live, then bytes; true beats false."""
    off = replace(ORDERS, cdc=False)
    for order in ((ORDERS, off), (off, ORDERS)):
        rows, _ = applied(*(ddl.mutation("ks", rows_of(one), written=NOW) for one in order))
        assert rows.definitions["ks", "orders"].cdc
    rows, _ = applied(create(NOTES), create(ORDERS), drop(ORDERS))
    assert rows.definitions == {("ks", "notes"): NOTES}


def test_what_a_keyspace_s_deletion_covers() -> None:
    """Everything written up to it; what is created at a later time stands, whichever comes first."""
    again = replace(ORDERS, id=UUID(int=7))
    rows, changes = applied(create(ORDERS, NOW), drop_keyspace("ks", NOW + 1), create(again, NOW + 2))
    assert [change.dropped for change in changes] == [(), (ORDERS,), ()]
    rows, (stale, change) = applied(create(ORDERS, NOW), drop_keyspace("ks", NOW + 1), rows=rows)
    assert (stale, change) == (SchemaChange(), SchemaChange())
    assert rows.definitions == {("ks", "orders"): again}


@pytest.mark.parametrize(
    ("start", "end", "gone"),
    [
        ((b"orders",), (b"orders",), ["ks.orders"]),
        ((), (), ["ks.notes", "ks.orders"]),
        ((b"o",), (), ["ks.orders"]),
        ((), (b"o",), ["ks.notes"]),
        ((b"p",), (), []),
    ],
)
def test_ranges_of_rows_that_are_deleted(start: tuple[bytes, ...], end: tuple[bytes, ...], gone: list[str]) -> None:
    """No node writes them today; Cassandra would merge them, and so do we: also over what comes later and is older."""
    rows, _ = applied(create(ORDERS), create(NOTES))
    deletion = Deletion(NOW + 5, NOW // 1_000_000)
    items = (RangeMarker(kind=1, values=start, open=deletion), RangeMarker(kind=6, values=end, close=deletion))
    updates = [PartitionUpdate(table=SCHEMA[name], key=b"ks", items=items) for name in ("columns", "tables")]
    rows, change = rows.apply(Mutation(updates=tuple(updates)))
    assert [str(one) for one in change.dropped] == gone
    rows, changes = applied(create(ORDERS), create(NOTES), rows=rows)
    assert [str(one) for change in changes for one in change.dropped] == []
    assert sorted(str(one) for one in rows.definitions.values()) == sorted({"ks.notes", "ks.orders"} - set(gone))
    rows, _ = applied(create(ORDERS, NOW + 6), rows=rows)
    assert ("ks", "orders") in rows.definitions


def test_rows_that_define_nothing_leave_the_last_definition() -> None:
    """An ALTER of a table whose other rows were written before our history: no definition, and that is told."""
    rows, (change,) = applied(alter(replace(NOTES, cdc=False), replace(WIDE, cdc=False)))
    assert (change.defined, rows.definitions) == ((), {})
    assert [problem.table for problem in change.problems] == ["ks.notes"]


WIDE = table({"id": "text"}, regular={"v": "int"}, name="notes", table_id=NOTES.id)
WIDER = table({"id": "text"}, regular={"v": "int", "w": "int"}, name="notes", table_id=NOTES.id)


def test_a_base_of_the_log_s_place_counts_until_the_log_is_newer() -> None:
    """DDL up to the base's time is contained in it; later DDL builds on it."""
    off = replace(WIDE, cdc=False)
    rows = SchemaRows().with_base(rows_of(WIDE, NOW), read=False)
    rows, changes = applied(alter(WIDE, off, NOW - 1), alter(WIDE, off, NOW), rows=rows)
    assert changes == [SchemaChange(), SchemaChange()]
    assert rows.written(("ks", "notes")) == NOW
    rows, (change,) = applied(alter(WIDE, WIDER, NOW + 1), rows=rows)
    assert change.defined == (WIDER,)
    assert rows.written(("ks", "notes")) == NOW + 1


def test_a_base_that_was_read_gives_way_to_all_of_the_log() -> None:
    """It is later than the log's place: a flag that went off and on counts at each step."""
    off = replace(WIDE, cdc=False)
    rows = SchemaRows().with_base(rows_of(WIDER, NOW), read=True)
    steps = (alter(WIDE, off, NOW - 3), alter(off, WIDE, NOW - 2), alter(WIDE, WIDER, NOW))
    rows, changes = applied(*steps, rows=rows)
    assert [change.defined for change in changes] == [(replace(WIDER, cdc=False),), (WIDER,), ()]


def test_a_base_that_was_read_gives_way_to_a_creation_in_the_log() -> None:
    """The read was later than the log's place: what the log says from the creation on is exact."""
    rows = SchemaRows().with_base(rows_of(WIDE, NOW), read=True)
    rows, changes = applied(create(NOTES, NOW - 9), alter(NOTES, WIDE, NOW), rows=rows)
    assert [change.defined for change in changes] == [(NOTES,), (WIDE,)]
    rows = SchemaRows().with_base(rows_of(NOTES, NOW), read=True)
    assert applied(create(NOTES, NOW), rows=rows)[1] == [SchemaChange(defined=(NOTES,))]
    rows = SchemaRows().with_base(rows_of(WIDE, NOW), read=False)
    assert applied(create(NOTES, NOW - 9), rows=rows)[1] == [SchemaChange()]


def test_a_creation_of_another_table_ends_the_one_that_is_known() -> None:
    """The DROP was missed: nothing of the old table is left in the new one, whether a base or the log told of it."""
    other = table({"n": "int"}, name="notes", table_id=UUID(int=3))
    logged, _ = applied(create(NOTES, NOW))
    for known in (SchemaRows().with_base(rows_of(NOTES, NOW), read=False), logged):
        rows, (change,) = applied(create(other, NOW + 1), rows=known)
        assert (change.defined, change.dropped) == ((other,), (NOTES,))
        assert rows.definitions == {("ks", "notes"): other}


def test_a_rename_of_a_key_column_is_no_creation() -> None:
    """Although it has a key column: the base's other columns stay."""
    renamed = table({"number": "text"}, regular={"v": "int"}, name="notes", table_id=NOTES.id)
    for read in (True, False):
        rows = SchemaRows().with_base(rows_of(WIDE, NOW), read=read)
        assert applied(alter(WIDE, renamed, NOW + 1), rows=rows)[1][0].defined == (renamed,)


def test_a_mask_on_the_partition_key_is_no_creation() -> None:
    """From 5.0 on it writes the key's row again, and no other column's: all that is known of the table stays."""
    rows = SchemaRows().with_base([replace(row, written=NOW) for row in rows_of(WIDE)], read=True)
    masked = [row for row in rows_of(WIDE) if row.table == "tables" or row.row["column_name"] == "id"]
    mutation = decode_mutation(ddl.mutation("ks", masked, written=NOW + 1), 8, TABLES.get)
    assert not rows.creates(rows_by_table_of(mutation), ("ks", "notes"))
    rows, change = rows.apply(mutation)
    assert (change, rows.definitions["ks", "notes"]) == (SchemaChange(), WIDE)
    rows, changes = applied(alter(WIDE, WIDER, NOW + 2), ddl.mutation("ks", masked, written=NOW + 3), rows=rows)
    assert [change.defined for change in changes] == [(WIDER,), ()]


def test_a_stale_node_brings_nothing_of_a_dropped_table_back() -> None:
    """It was away for the DROP: neither the table comes back, nor a column of it into the next one of the name."""
    again = table({"k": "int"}, regular={"w": "int"}, name="notes", table_id=UUID(int=3))
    stale = create(WIDE, NOW)
    rows, changes = applied(create(WIDE, NOW), drop(WIDE, NOW + 5), stale, create(again, NOW + 7), stale)
    assert [change.defined for change in changes] == [(WIDE,), (), (), (again,), ()]
    assert rows.definitions == {("ks", "notes"): again}
    rows, changes = applied(stale, rows=SchemaRows().with_base(rows_of(again, NOW + 7), read=False))
    assert (changes, rows.definitions) == ([SchemaChange()], {("ks", "notes"): again})
    rows, changes = applied(create(WIDE, NOW + 9), rows=rows)
    assert [(change.defined, change.dropped) for change in changes] == [((WIDE,), (again,))]


def test_nor_where_the_next_one_was_read_before_the_log_came_to_it() -> None:
    """Whether or not the log knew the dropped one."""
    again = table({"k": "int"}, regular={"w": "int"}, name="notes", table_id=UUID(int=3))
    stale = create(WIDE, NOW)
    dropped, _ = applied(stale, drop(WIDE, NOW + 5))
    read = dropped.with_base(rows_of(again, NOW + 7), read=True)
    rows, changes = applied(stale, create(again, NOW + 7), stale, rows=read)
    assert [change.defined for change in changes] == [(), (again,), ()]
    read = SchemaRows().with_base(rows_of(again, NOW + 7), read=True)
    rows, changes = applied(drop(WIDE, NOW + 5), stale, create(again, NOW + 7), stale, rows=read)
    assert [change.defined for change in changes] == [(), (), (again,), ()]
    assert rows.definitions == {("ks", "notes"): again}


def test_a_whole_schema_is_gone_through_once() -> None:
    """A node may send thousands of tables in one mutation: work does not grow with their square."""

    class Rows(tuple[Row | RangeMarker, ...]):
        """Counts how often somebody goes through them."""

        passes = 0

        def __iter__(self) -> Iterator[Row | RangeMarker]:
            Rows.passes += 1
            return super().__iter__()

    tables = [replace(WIDE, name=f"t{number}", id=UUID(int=number + 9)) for number in range(20)]
    every_row = [row for each in tables for row in rows_of(each, NOW)]
    decoded = decode_mutation(ddl.mutation("ks", every_row, written=NOW - 9), 8, TABLES.get)
    mutation = Mutation(updates=tuple(replace(update, items=Rows(update.items)) for update in decoded.updates))
    _, change = SchemaRows().with_base(every_row, read=True).apply(mutation)
    assert len(change.defined) == 20
    assert Rows.passes < 20


def test_a_value_gives_way_as_a_whole() -> None:
    """The first value is left as it was: earlier ones can be gone back to."""
    before, _ = applied(create(NOTES))
    definitions = dict(before.definitions)
    applied(drop(NOTES, NOW + 1), create(ORDERS), drop_keyspace("ks", NOW + 2), rows=before)
    assert dict(before.definitions) == definitions
    assert definitions == {("ks", "notes"): NOTES}


def _cell(name: str, value: bytes) -> Cell:
    column = next(column for column in SCHEMA["tables"].regular if column.name == name)
    return Cell(column, None, NOW, None, None, value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda: Row(clustering=(b"\xff",), marker=Marker(NOW)),
        lambda: Row(clustering=(b"t",), cells=(_cell("id", b"short"),)),
    ],
)
def test_bytes_that_are_no_value(damage: Callable[[], Row]) -> None:
    """A DecodeError, nothing else."""
    update = PartitionUpdate(table=SCHEMA["tables"], key=b"ks", items=(damage(),))
    with pytest.raises(DecodeError):
        SchemaRows().apply(Mutation(updates=(update,)))


def test_a_view_is_a_table_of_its_own() -> None:
    """Its row stands in `views`, its columns with the others."""
    view = [
        KeyedRow("views", {"keyspace_name": "ks", "view_name": "notes", "id": NOTES.id, "cdc": False}),
        *(row for row in rows_of(NOTES) if row.table == "columns"),
    ]
    rows, (change,) = applied(ddl.mutation("ks", view))
    assert change.defined == (replace(NOTES, flags=frozenset({"compound", "view"})),)
    assert {row.table for row in rows.rows(("ks", "notes"))} == {"views", "columns"}


def test_a_view_by_another_column_than_its_base_s_key_is_strict() -> None:
    """In the log, and by the rows that are kept of it, which say so without the base table's."""
    base = table({"id": "text"}, {}, {}, {"owner": "text"}, keyspace="ks", name="base", table_id=UUID(int=7))
    view = table({"owner": "text"}, {"id": "text"}, {}, {}, keyspace="ks", name="by_owner", table_id=UUID(int=8))
    row = {"keyspace_name": "ks", "view_name": "by_owner", "id": view.id, "cdc": True, "base_table_name": "base"}
    view_rows = [KeyedRow("views", row), *(row for row in rows_of(view) if row.table == "columns")]
    strict = replace(view, flags=frozenset({"compound", "view", "strict"}))
    rows, (_, change) = applied(ddl.create(base), ddl.mutation("ks", view_rows))
    assert change.defined == (strict,)
    kept = rows.rows(("ks", "by_owner"))
    assert definitions_of(kept).tables == (strict,)
    assert SchemaRows().with_base(kept, read=False).definitions[("ks", "by_owner")] == strict


def test_options_are_not_kept() -> None:
    """Only what defines something: a record of the history is no place for comments."""
    names = {name for step in recorded("5.0") for one in step.rows.rows(("shop", "orders")) for name in one.row}
    assert names == {
        *("keyspace_name", "table_name", "id", "flags", "cdc"),
        *("column_name", "column_name_bytes", "kind", "position", "clustering_order", "type"),
        *("dropped_time", "type_name", "field_names", "field_types"),
    }
