"""Rows of system_schema to tables, from the driver's values and from JSON lines; the built-in system tables."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.definitions import Definitions, read_schema_file, tables_from_rows
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.system_tables import system_table_id, system_tables
from tailrace_schemas.table import Column, ColumnKind, DroppedColumn, Table

FIXTURES = Path(__file__).parents[2] / "fixtures" / "commitlog"
ID = UUID("2be43760-e57f-11f1-8599-73518cff440e")
INT = CqlType("int")


def table_row(name: str = "t", **values: Any) -> dict[str, Any]:
    return {"keyspace_name": "ks", "table_name": name, "id": ID, "flags": {"compound"}, "cdc": True} | values


def column_row(
    name: str, kind: str = "regular", text: str = "int", position: int = -1, **values: Any
) -> dict[str, Any]:
    row = {"keyspace_name": "ks", "table_name": "t", "column_name": name, "column_name_bytes": name.encode()}
    return row | {"kind": kind, "position": position, "type": text, "clustering_order": "none"} | values


PK = column_row("pk", "partition_key", position=0)


def defined(*columns: dict[str, Any], **others: Any) -> Definitions:
    return tables_from_rows(**({"tables": [table_row()], "columns": [PK, *columns]} | others))


def only(definitions: Definitions) -> Table:
    assert definitions.problems == ()
    (table,) = definitions.tables
    return table


def test_columns_by_kind_and_order() -> None:
    found = only(
        defined(
            column_row("z"),
            column_row("é"),
            column_row("a"),
            column_row("s2", "static"),
            column_row("s1", "static"),
            column_row("c1", "clustering", position=1, clustering_order="desc"),
            column_row("c0", "clustering", position=0, clustering_order="asc"),
            column_row("pk2", "partition_key", position=1),
        )
    )
    assert [column.name for column in found.partition_key] == ["pk", "pk2"]
    assert [(column.name, column.descending) for column in found.clustering] == [("c0", False), ("c1", True)]
    assert [column.name for column in found.static] == ["s1", "s2"]
    assert [column.name for column in found.regular] == ["a", "z", "é"]
    assert found.regular[2] == Column("é", "é".encode(), ColumnKind.REGULAR, INT)
    assert (found.keyspace, found.name, found.id, found.cdc) == ("ks", "t", ID, True)


def test_name_bytes_are_those_of_the_row() -> None:
    # Static-compact tables: names are values of the comparator, and text is only how they are shown.
    (column,) = only(defined(column_row("0x00ff", column_name_bytes=b"\x00\xff"))).regular
    assert (column.name, column.name_bytes) == ("0x00ff", b"\x00\xff")


@pytest.mark.parametrize(("cdc", "expected"), [(True, True), (False, False), (None, False)])
def test_cdc_may_be_null(cdc: bool | None, expected: bool) -> None:
    assert only(defined(tables=[table_row(cdc=cdc)])).cdc is expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"compound", "counter"}, {"compound", "counter"}),
        (["dense"], {"dense"}),
        (set(), set()),
        (None, {"compound"}),
    ],
)
def test_flags(flags: Any, expected: set[str]) -> None:
    assert only(defined(tables=[table_row(flags=flags)])).flags == expected


@pytest.mark.parametrize(
    ("base", "flags"),
    [
        ({"pk": "partition_key", "x": "regular"}, {"compound", "view"}),
        ({"id": "partition_key", "pk": "clustering"}, {"compound", "view"}),
        ({"id": "partition_key", "pk": "regular"}, {"compound", "view", "strict"}),
        ({}, {"compound", "view"}),
    ],
)
def test_views_are_tables_with_flags_of_ours(base: dict[str, str], flags: set[str]) -> None:
    """Strict is one whose key has a column that its base table's key lacks, as far as that is known."""
    row = {"keyspace_name": "ks", "view_name": "t", "id": ID, "cdc": None, "base_table_name": "other"}
    columns = [column_row(name, kind=kind, table_name="other") for name, kind in base.items()]
    found = only(defined(*columns, tables=[], views=[row]))
    assert (found.name, found.id, found.cdc) == ("t", ID, False)
    assert found.flags == flags
    kept = {**row, "flags": sorted(found.flags)}
    assert only(defined(tables=[], views=[kept])) == found


def test_user_types_are_those_of_the_keyspace() -> None:
    addr = {"type_name": "addr", "field_names": ["street", "zip"], "field_types": ["text", "int"]}
    other = addr | {"keyspace_name": "other", "field_names": ["x"], "field_types": ["blob"]}
    (column,) = only(defined(column_row("a", text="addr"), types=[addr | {"keyspace_name": "ks"}, other])).regular
    assert column.type.fields == ("street", "zip")
    assert column.type.multicell


DROPPED_AT = 1_795_246_989_889
DROP_TIMES = [
    DROPPED_AT,
    datetime(2026, 11, 21, 7, 43, 9, 889_000),  # noqa: DTZ001 - as the driver gives it
    datetime(2026, 11, 21, 7, 43, 9, 889_000, UTC),
    datetime(2026, 11, 21, 8, 43, 9, 889_000, timezone(timedelta(hours=1))),
]


@pytest.mark.parametrize("time", DROP_TIMES)
def test_dropped_columns(time: int | datetime) -> None:
    row = {"keyspace_name": "ks", "table_name": "t", "column_name": "b", "type": "text", "dropped_time": time}
    found = only(defined(dropped_columns=[row | {"kind": "static"}, row | {"column_name": "a", "kind": None}]))
    assert found.dropped == (
        DroppedColumn(Column("a", b"a", ColumnKind.REGULAR, CqlType("text")), DROPPED_AT * 1000),
        DroppedColumn(Column("b", b"b", ColumnKind.STATIC, CqlType("text")), DROPPED_AT * 1000),
    )


def test_a_dropped_column_that_is_not_understood_leaves_the_table_in() -> None:
    row = {"keyspace_name": "ks", "table_name": "t", "column_name": "b", "type": "missing", "dropped_time": 5}
    found = defined(dropped_columns=[row])
    assert [table.dropped for table in found.tables] == [()]
    (problem,) = found.problems
    assert str(problem).startswith("ks.t: dropped column left out: column b: type 'missing'")


TWO = [table_row(), table_row("u")]
OTHER = PK | {"table_name": "u"}
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"tables": TWO, "columns": [PK, OTHER | {"type": "nope"}]}, "column pk: type 'nope'"),
    ({"tables": TWO, "columns": [PK, OTHER | {"type": "frozen<" * 2000 + "int" + ">" * 2000}]}, "column pk"),
    ({"tables": TWO, "columns": [PK, OTHER | {"kind": "odd"}]}, "'odd' is not a valid ColumnKind"),
    ({"tables": TWO}, "rows of system_schema.columns are missing"),
    (
        {"tables": TWO, "columns": [PK, OTHER, OTHER | {"column_name": "c", "kind": "clustering", "position": 1}]},
        "key columns at positions [1]",
    ),
    ({"tables": [TWO[0], table_row("u", id="no id")], "columns": [PK, OTHER]}, "badly formed hexadecimal UUID string"),
]


@pytest.mark.parametrize(("rows", "reason"), BROKEN)
def test_a_table_that_is_not_understood_takes_no_other_with_it(rows: dict[str, Any], reason: str) -> None:
    found = defined(**rows)
    assert [table.name for table in found.tables] == ["t"]
    (problem,) = found.problems
    assert problem.table == "ks.u"
    assert reason in problem.reason


def test_tables_come_by_keyspace_and_name() -> None:
    names = [("b", "x"), ("a", "z"), ("a", "y")]
    found = tables_from_rows(
        tables=[table_row(name, keyspace_name=keyspace) for keyspace, name in names],
        columns=[PK | {"keyspace_name": keyspace, "table_name": name} for keyspace, name in names],
    )
    assert [str(table) for table in found.tables] == ["a.y", "a.z", "b.x"]


def line(table: str, row: dict[str, Any]) -> str:
    return json.dumps({"table": table, "row": row}) + "\n"


def test_json_lines() -> None:
    plain = PK | {"column_name_bytes": "0x706b"}
    dropped = {"keyspace_name": "ks", "table_name": "t", "column_name": "b", "type": "text", "kind": "regular"}
    lines = [
        line("keyspaces", {"keyspace_name": "ks", "durable_writes": True}),
        line("tables", table_row(id=str(ID), flags=["compound"])),
        "\n",
        line("columns", plain),
        line("dropped_columns", dropped | {"dropped_time": "2026-11-21 07:43:09.889Z"}),
    ]
    found = read_schema_file(lines)
    assert found.definitions == defined(dropped_columns=[dropped | {"dropped_time": DROPPED_AT}])
    assert found.release == "4.0"


@pytest.mark.parametrize(
    ("kind", "release", "dropped"),
    [
        ("4.0-beta4/uncompressed", "4.0", {"drp"}),
        ("5.0.1/compat-cassandra4-v7", "5.0", {"drp"}),
        ("4.0-beta4/rollover-uncompressed", "4.0", set()),
    ],
)
def test_recorded_schemas(kind: str, release: str, dropped: set[str]) -> None:
    text = gzip.decompress((FIXTURES / kind / "schema.jsonl.gz").read_bytes()).decode()
    found = read_schema_file(text.splitlines())
    assert found.release == release
    assert found.definitions.problems == ()
    assert len(found.definitions.tables) == text.count('"bloom_filter_fp_chance"')
    assert {table.name for table in found.definitions.tables if table.dropped} == dropped


def test_the_release_that_is_between() -> None:
    assert read_schema_file([line("tables", table_row(id=str(ID), flags=[], memtable=None))]).release == "4.1"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "5",
        '{"table": "columns"}',
        '{"table": "columns", "row": 5}',
        '{"table": "columns", "row": {"column_name_bytes": "0xzz"}}',
        '{"table": "tables", "row": {"id": "no id"}}',
        '{"table": "dropped_columns", "row": {"dropped_time": "yesterday"}}',
    ],
)
def test_lines_that_are_no_rows(text: str) -> None:
    with pytest.raises(SettingsError, match="schema file, line 2: not a row"):
        read_schema_file([line("keyspaces", {}), text])


@pytest.mark.parametrize("row", [{"table": "tables", "row": {}}, {"table": "columns", "row": {"column_name": "x"}}])
def test_rows_without_a_key(row: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="lacks its key"):
        read_schema_file([json.dumps(row)])


# Fixed in Cassandra; the first ones as its documentation and tools show them.
IDS = {
    "system.local": "7ad54392-bcdd-35a6-8417-4e047860b377",
    "system.batches": "919a4bc5-7a33-3573-b03e-13fc3f68b465",
    "system.paxos": "b7b7f0c2-fd0a-3410-8c05-3ef614bb7c2d",
    "system.peers": "37f71aca-7dc2-383b-a706-72528af04d4f",
    "system.peers_v2": "c4325fbb-8e5e-3baf-bd07-0f9250ed818e",
    "system.compaction_history": "b4dbb7b4-dc49-3fb5-b3bf-ce6e434832ca",
    "system.sstable_activity": "5a1ff267-ace0-3f12-8563-cfae6103c65e",
    "system.IndexInfo": "9f5c6374-d485-3229-9a0a-5094af9ad1e3",
    "system_schema.keyspaces": "abac5682-dea6-31c5-b535-b3d6cffd0fb6",
    "system_schema.tables": "afddfb9d-bc1e-3068-8056-eed6c302ba09",
    "system_schema.columns": "24101c25-a2ae-3af7-87c1-b40ee1aca33f",
    "system_schema.dropped_columns": "5e7583b5-f3f4-3af1-9a39-b7e1d6f5f11f",
    "system_schema.types": "5a8b1ca8-6602-3f77-a045-9273d308917a",
    "system_schema.views": "9786ac1c-dd58-3201-a7cd-ad556410c985",
    # As a live 5.0.9 answered.
    "system.paxos_repair_history": "ecb86667-40b2-3316-bb91-e612c8047457",
    "system_auth.cidr_permissions": "b8b43d5f-d6c0-331c-8f7d-765ea658f4c4",
    "system_distributed.partition_denylist": "d6123acc-8649-3496-9d4e-f3fe39a6018b",
    "system.local_metadata_log": "e4ddd16e-bea6-31f4-8361-e88f07af8d4e",
    "system_cluster_metadata.distributed_metadata_log": "d885727a-f67b-3a32-951b-78efe9c75732",
}


def test_ids_of_system_tables() -> None:
    found = {str(table): table for table in system_tables()}
    assert {name: str(found[name].id) for name in IDS} == IDS
    assert str(system_table_id("system", "local")) == IDS["system.local"]
    assert len({table.id for table in system_tables()}) == len(found) == len(system_tables())


def test_system_tables_are_as_others() -> None:
    found = {str(table): table for table in system_tables()}
    for table in system_tables():
        assert not table.cdc
        assert [column.position for column in table.partition_key] == list(range(len(table.partition_key)))
        assert [column.position for column in table.clustering] == list(range(len(table.clustering)))
        for columns in (table.static, table.regular):
            assert list(columns) == sorted(columns, key=lambda column: column.name_bytes)
            assert all(column.position == -1 for column in columns)
    local = found["system.local"]
    assert {str(column.type) for column in local.regular if column.name == "truncated_at"} == {"map<uuid, blob>"}
    assert [dropped.column.name for dropped in local.dropped] == ["thrift_version"]
    # Columns that only newer releases have.
    assert {"cdc", "memtable", "allow_auto_snapshot"} <= {c.name for c in found["system_schema.tables"].regular}
