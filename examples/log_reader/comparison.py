"""Two tables of one definition, row by row, with every cell's write time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cassandra.cluster import Session
from cassandra.metadata import TableMetadata


def differences(session: Session, one: TableMetadata, other: TableMetadata) -> Iterator[str]:
    """What differs, in words: rows that one of them lacks, values, write times; from 5.0 on each element's too."""
    first, second = _rows(session, one), _rows(session, other)
    for key in sorted(first.keys() | second.keys(), key=repr):
        if first.get(key) != second.get(key):
            yield f"{key}: {first.get(key, 'missing')} and {second.get(key, 'missing')}"


def rows_of(session: Session, table: TableMetadata) -> int:
    """How many rows a table has."""
    return len(_rows(session, table))


def _rows(session: Session, table: TableMetadata) -> dict[str, tuple[Any, ...]]:
    keys = [f'"{column.name}"' for column in (*table.partition_key, *table.clustering_key)]
    user_types = session.cluster.metadata.keyspaces[table.keyspace_name].user_types
    others, parts = [], []
    for name, column in sorted(table.columns.items()):
        if f'"{name}"' not in keys:
            others.append(f'"{name}"')
            # A list of a user type's write times has nulls in it, which the driver cannot read.
            fields = user_types[column.cql_type].field_names if column.cql_type in user_types else ()
            parts += [f'"{name}"."{field}"' for field in fields] or [f'"{name}"']
    shown = [*keys, *others, *(f"writetime({part})" for part in parts)]
    rows = session.execute(f'SELECT {", ".join(shown)} FROM {table.keyspace_name}."{table.name}"')
    return {repr(tuple(row)[: len(keys)]): tuple(map(_plain, tuple(row)[len(keys) :])) for row in rows}


def _plain(value: Any) -> Any:
    """The driver's collections as Python's, which compare by what is in them."""
    if hasattr(value, "items"):
        return sorted(((repr(key), repr(item)) for key, item in value.items()))
    return repr(value)
