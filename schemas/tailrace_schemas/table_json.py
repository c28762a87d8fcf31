"""A table's definition as JSON, as `<prefix>.schemas` carries it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.table import Column, ColumnKind, DroppedColumn, Table

FORMAT: Final = 1


def table_to_json(table: Table) -> dict[str, object]:
    """The definition as a JSON value; types are written out whole, so that nothing else is needed to read it."""
    return {
        "format": FORMAT,
        "keyspace": table.keyspace,
        "name": table.name,
        "id": str(table.id),
        "cdc": table.cdc,
        "flags": sorted(table.flags),
        "columns": [_column_to_json(column) for column in (*table.key, *table.columns)],
        "dropped": [{**_column_to_json(dropped.column), "dropped_at": dropped.dropped_at} for dropped in table.dropped],
    }


def table_from_json(value: Mapping[str, Any]) -> Table:
    """The table of a `table_to_json` value. Raises ValueError for another format, KeyError for a missing part."""
    if value["format"] != FORMAT:
        raise ValueError(f"table definition of format {value['format']}; this version reads {FORMAT}")
    columns = [_column_from_json(column) for column in value["columns"]]

    def of(kind: ColumnKind) -> tuple[Column, ...]:
        return tuple(column for column in columns if column.kind is kind)

    return Table(
        keyspace=value["keyspace"],
        name=value["name"],
        id=UUID(value["id"]),
        partition_key=of(ColumnKind.PARTITION_KEY),
        clustering=of(ColumnKind.CLUSTERING),
        static=of(ColumnKind.STATIC),
        regular=of(ColumnKind.REGULAR),
        dropped=tuple(DroppedColumn(_column_from_json(c), c["dropped_at"]) for c in value["dropped"]),
        cdc=value["cdc"],
        flags=frozenset(value["flags"]),
    )


def _column_to_json(column: Column) -> dict[str, object]:
    value: dict[str, object] = {
        "name": column.name,
        "kind": column.kind.value,
        "type": _type_to_json(column.type),
        "position": column.position,
    }
    if column.name_bytes != column.name.encode():
        value["name_bytes"] = column.name_bytes.hex()
    if column.descending:
        value["descending"] = True
    return value


def _column_from_json(value: Mapping[str, Any]) -> Column:
    name: str = value["name"]
    return Column(
        name=name,
        name_bytes=bytes.fromhex(value["name_bytes"]) if "name_bytes" in value else name.encode(),
        kind=ColumnKind(value["kind"]),
        type=_type_from_json(value["type"]),
        position=value["position"],
        descending=value.get("descending", False),
    )


def _type_to_json(cql_type: CqlType) -> object:
    if not (cql_type.args or cql_type.fields or cql_type.name or cql_type.frozen):
        return cql_type.kind
    value: dict[str, object] = {"kind": cql_type.kind, "args": [_type_to_json(arg) for arg in cql_type.args]}
    if cql_type.frozen:
        value["frozen"] = True
    if cql_type.name:
        value["name"] = cql_type.name
    if cql_type.fields:
        value["fields"] = list(cql_type.fields)
    if cql_type.dimension:
        value["dimension"] = cql_type.dimension
    return value


def _type_from_json(value: str | Mapping[str, Any]) -> CqlType:
    if isinstance(value, str):
        return CqlType(value)
    return CqlType(
        kind=value["kind"],
        args=tuple(_type_from_json(arg) for arg in value["args"]),
        frozen=value.get("frozen", False),
        name=value.get("name", ""),
        fields=tuple(value.get("fields", ())),
        dimension=value.get("dimension", 0),
    )
