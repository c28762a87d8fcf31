"""A table's definition as JSON, as `<prefix>.schemas` carries it, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from tailrace_schemas.cql.types import MAX_DEPTH, CqlType, require_shallow, shared
from tailrace_schemas.formats import require_format
from tailrace_schemas.table import Column, ColumnKind, DroppedColumn, Table

FORMAT: Final = 2


def table_to_json(table: Table) -> dict[str, object]:
    """The definition as a JSON value; the types that it uses are part of it, so that nothing else is needed to read it.

    A user type stands there once, however often it is used, in `types`; each uses only those before it. Elsewhere its
    number stands for it.
    """
    types = _Types()
    return {
        "format": FORMAT,
        "keyspace": table.keyspace,
        "name": table.name,
        "id": str(table.id),
        "cdc": table.cdc,
        "flags": sorted(table.flags),
        "columns": [_column_to_json(column, types) for column in (*table.key, *table.columns)],
        "dropped": [
            {**_column_to_json(dropped.column, types), "dropped_at": dropped.dropped_at} for dropped in table.dropped
        ],
        "types": types.written,
    }


def table_from_json(value: Mapping[str, Any]) -> Table:
    """The table of a `table_to_json` value.

    Raises ValueError for another format and for types that are too deep, KeyError or another LookupError for a missing
    part. Raises TypeError or AttributeError for a part of another kind.
    """
    require_format(f"the definition of table {value['name']}", value["format"], FORMAT, error=ValueError)
    user_types: list[CqlType] = []
    for written in value["types"]:
        user_types.append(require_shallow(_type_from_json(written, user_types)))
    columns = [_column_from_json(column, user_types) for column in value["columns"]]

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
        dropped=tuple(DroppedColumn(_column_from_json(c, user_types), c["dropped_at"]) for c in value["dropped"]),
        cdc=value["cdc"],
        flags=frozenset(value["flags"]),
    )


class _Types:
    """The user types of one definition, as JSON values: `written`, each once."""

    def __init__(self) -> None:
        self.written: list[object] = []
        self._numbers: dict[CqlType, int] = {}

    def number(self, cql_type: CqlType) -> int:
        """Where a user type stands among them."""
        index = self._numbers.get(cql_type)
        if index is None:
            value = _written_out(cql_type, self)
            index = self._numbers[cql_type] = len(self.written)
            self.written.append(value)
        return index


def _column_to_json(column: Column, types: _Types) -> dict[str, object]:
    value: dict[str, object] = {
        "name": column.name,
        "kind": column.kind.value,
        "type": _type_to_json(column.type, types),
        "position": column.position,
    }
    if column.name_bytes != column.name.encode():
        value["name_bytes"] = column.name_bytes.hex()
    if column.descending:
        value["descending"] = True
    return value


def _column_from_json(value: Mapping[str, Any], types: Sequence[CqlType]) -> Column:
    name: str = value["name"]
    return Column(
        name=name,
        name_bytes=bytes.fromhex(value["name_bytes"]) if "name_bytes" in value else name.encode(),
        kind=ColumnKind(value["kind"]),
        type=require_shallow(_type_from_json(value["type"], types)),
        position=value["position"],
        descending=value.get("descending", False),
    )


def _type_to_json(cql_type: CqlType, types: _Types) -> object:
    return types.number(cql_type) if cql_type.kind == "udt" else _written_out(cql_type, types)


def _written_out(cql_type: CqlType, types: _Types) -> object:
    if not (cql_type.args or cql_type.fields or cql_type.name or cql_type.frozen):
        return cql_type.kind
    value: dict[str, object] = {"kind": cql_type.kind, "args": [_type_to_json(arg, types) for arg in cql_type.args]}
    if cql_type.frozen:
        value["frozen"] = True
    if cql_type.name:
        value["name"] = cql_type.name
    if cql_type.fields:
        value["fields"] = list(cql_type.fields)
    if cql_type.dimension:
        value["dimension"] = cql_type.dimension
    return value


def _type_from_json(value: object, types: Sequence[CqlType], depth: int = 1) -> CqlType:
    """A type: a native one's word, the number of one that is `types`, or what `_written_out` gives."""
    if isinstance(value, str):
        return CqlType(value)
    if isinstance(value, int):
        if not 0 <= value < len(types):
            raise ValueError(f"a definition with {len(types)} types refers to type {value}")
        return types[value]
    if not isinstance(value, Mapping):
        raise TypeError(f"a type is a word, a number or an object, not {type(value).__name__}")
    if depth > MAX_DEPTH:
        raise ValueError(f"a definition with more than {MAX_DEPTH} types in one another")
    cql_type = CqlType(
        kind=value["kind"],
        args=tuple(_type_from_json(arg, types, depth + 1) for arg in value["args"]),
        frozen=value.get("frozen", False),
        name=value.get("name", ""),
        fields=tuple(value.get("fields", ())),
        dimension=value.get("dimension", 0),
    )
    return shared(cql_type) if cql_type.kind == "udt" else cql_type
