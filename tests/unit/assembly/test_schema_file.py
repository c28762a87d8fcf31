"""Which rows of `system_schema` a schema file gets, and that it reads back as the same tables."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from tailrace.assembly.schema_file import chosen_rows, lines_of, rows_of_history
from tailrace.history.records import HistoryRecord
from tailrace.history.rows import KeyedRow, definitions_of
from tailrace_schemas.definitions import read_schema_file
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.position import Position


def rows(keyspace: str, table: str, table_id: UUID, *, column: str = "v", written: int = 1) -> list[KeyedRow]:
    name = {"keyspace_name": keyspace, "table_name": table}

    def column_row(column: str, kind: str, cql: str) -> KeyedRow:
        more = {"column_name": column, "column_name_bytes": column.encode(), "kind": kind, "type": cql}
        more |= {"clustering_order": "none", "position": 0 if kind == "partition_key" else -1}  # type: ignore[dict-item]
        return KeyedRow("columns", {**name, **more}, written)

    return [
        KeyedRow("tables", {**name, "id": table_id, "flags": {"compound"}, "cdc": True}, written),
        column_row("k", "partition_key", "int"),
        column_row(column, "regular", "text"),
    ]


ORDERS, ITEMS, OTHER = uuid4(), uuid4(), uuid4()
TYPE = KeyedRow("types", {"keyspace_name": "shop", "type_name": "t", "field_names": ["a"], "field_types": ["int"]}, 1)
ROWS = [*rows("shop", "orders", ORDERS), *rows("shop", "items", ITEMS), *rows("other", "t", OTHER), TYPE]


def tables_of(some: list[KeyedRow]) -> list[str]:
    return sorted(map(str, read_schema_file(lines_of(some, ROWS)).definitions.tables))


@pytest.mark.parametrize(
    ("names", "tables", "types"),
    [
        ([], ["other.t", "shop.items", "shop.orders"], 1),
        (["shop.orders"], ["shop.orders"], 1),
        (["shop.*"], ["shop.items", "shop.orders"], 1),
        (["other.t", str(ITEMS)], ["other.t", "shop.items"], 1),
        (["other.*"], ["other.t"], 0),
    ],
)
def test_tables_are_chosen_with_their_keyspaces_types(names: list[str], tables: list[str], types: int) -> None:
    found = chosen_rows(ROWS, names)
    assert tables_of(found) == tables
    assert len([row for row in found if row.table == "types"]) == types


def test_a_name_that_no_table_has() -> None:
    with pytest.raises(SettingsError, match=r"shop\.order: no such table is defined; did you mean shop\.orders\?"):
        chosen_rows(ROWS, ["shop.order"])


def test_the_file_defines_the_same_tables() -> None:
    read = read_schema_file(lines_of(ROWS, ROWS)).definitions
    assert set(read.tables) == set(definitions_of(ROWS).tables)
    assert read.problems == ()


@pytest.mark.parametrize(("options", "release"), [([], "4.0"), (["memtable"], "4.1"), (["allow_auto_snapshot"], "5.0")])
def test_the_release_line_is_told(options: list[str], release: str) -> None:
    own = [
        KeyedRow("columns", {"keyspace_name": "system_schema", "table_name": "tables", "column_name": option})
        for option in options
    ]
    assert read_schema_file(lines_of(ROWS, own)).release == release


@pytest.mark.promise("commands.schema-export")
def test_a_history_gives_the_last_definition_of_each_table_dropped_ones_too() -> None:
    def record(offset: int, table_id: UUID, column: str | None) -> HistoryRecord:
        own = () if column is None else tuple(rows("shop", "orders", table_id, column=column, written=offset))
        return HistoryRecord(Position(1, 1, offset), table_id, ("shop", "orders"), own)

    records = [record(1, ORDERS, "a"), record(2, ORDERS, "b"), record(3, ORDERS, None)]

    def columns(some: list[KeyedRow]) -> list[str]:
        (table,) = read_schema_file(lines_of(some, ())).definitions.tables
        return [column.name for column in table.columns]

    assert columns(rows_of_history(records, ())) == ["b"]
    again = [*records, record(4, ITEMS, "c")]
    assert columns(rows_of_history(again, ())) == ["c"]
    assert columns(rows_of_history(again, (str(ORDERS),))) == ["b"]
    assert rows_of_history([replace(records[0], rows=())], ()) == []
