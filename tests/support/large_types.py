"""Tables whose user types are nested deeply."""

from __future__ import annotations

from uuid import UUID

from tailrace_schemas.definitions import Definitions, SchemaRow, tables_from_rows
from tailrace_schemas.table import Table

FIELDS = 15


def nested(levels: int, fields: int = FIELDS) -> Definitions:
    """A table with a column of the last of so many user types, each of so many fields of the one before."""
    types: list[SchemaRow] = [
        {
            "keyspace_name": "ks",
            "type_name": f"t{level}",
            "field_names": [f"f{number}" for number in range(fields)],
            "field_types": ["int" if level == 0 else f"frozen<t{level - 1}>"] * fields,
        }
        for level in range(levels)
    ]
    last = f"t{levels - 1}"
    columns: list[SchemaRow] = [
        {
            "keyspace_name": "ks",
            "table_name": "t",
            "column_name": name,
            "type": text,
            "kind": kind,
            "position": position,
        }
        for name, text, kind, position in (
            ("k", "int", "partition_key", 0),
            ("plain", last, "regular", -1),
            ("whole", f"frozen<list<frozen<{last}>>>", "regular", -1),
            ("each", f"map<int, frozen<{last}>>", "static", -1),
        )
    ]
    row: SchemaRow = {"keyspace_name": "ks", "table_name": "t", "id": UUID(int=1), "cdc": True}
    return tables_from_rows(tables=[row], columns=columns, types=types)


def only(definitions: Definitions) -> Table:
    """The one table."""
    assert definitions.problems == ()
    (table,) = definitions.tables
    return table
