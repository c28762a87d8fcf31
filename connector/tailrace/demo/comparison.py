"""Row by row and column by column: what SELECT returns against what the SQLite file holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.demo.rendering import comparable, rendered
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.table import Table

Row = Mapping[str, Any]
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not equal: a column of a row, or (`column` None) a row that only one side has."""

    table: str
    key: Mapping[str, object]
    column: str | None
    cassandra: object
    sqlite: object

    def __str__(self) -> str:
        row = f"{self.table} {dict(self.key)}"
        if self.column is None:
            return f"{row}: only in {'Cassandra' if self.sqlite is None else 'SQLite'}"
        return f"{row}: {self.column} is {self.cassandra!r} in Cassandra, {self.sqlite!r} in SQLite"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows that SELECT returned, by table, and every difference; identical when there is none."""

    rows: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether both hold the same rows with the same values."""
        return not self.differences

    @property
    def total(self) -> int:
        """Rows of all tables."""
        return sum(self.rows.values())


def compare(tables: Iterable[tuple[Table, Iterable[Row], Iterable[Row]]]) -> Comparison:
    """Compare (definition, rows of SELECT, rows of the sink) of each table.

    Rows are matched by their primary key; a column that the sink lacks differs wherever SELECT has a value.
    """
    counts: dict[str, int] = {}
    differences: list[Difference] = []
    for table, selected, stored in tables:
        source = list(selected)
        counts[str(table)] = len(source)
        differences.extend(_differences(table, source, stored))
    return Comparison(counts, tuple(differences))


def _differences(table: Table, selected: Iterable[Row], stored: Iterable[Row]) -> Iterator[Difference]:
    types = {column.name: column.type for column in (*table.key, *table.columns)}
    names = tuple(column.name for column in table.key)
    source = {_key(row, names): row for row in (_each(row, types, rendered) for row in selected)}
    copies = [_each(row, types, comparable) for row in stored]
    copy = {_key(row, names): row for row in copies}
    if len(copy) < len(copies):
        raise ValueError(f"{table}: the sink has {len(copies)} rows under {len(copy)} keys")
    for key in sorted(source.keys() | copy.keys(), key=repr):
        key_columns = dict(zip(names, key, strict=True))
        in_sqlite, in_cassandra = copy.get(key), source.get(key)
        if in_sqlite is None or in_cassandra is None:
            yield Difference(str(table), key_columns, None, in_cassandra and "a row", in_sqlite and "a row")
            continue
        for column in table.columns:
            selected_value, stored_value = in_cassandra.get(column.name), in_sqlite.get(column.name)
            if selected_value != stored_value:
                yield Difference(str(table), key_columns, column.name, selected_value, stored_value)


def _each(row: Row, types: Mapping[str, CqlType], convert: Callable[[Any, CqlType], object]) -> Row:
    return {name: convert(value, types[name]) for name, value in row.items()}


def _key(row: Row, names: tuple[str, ...]) -> Key:
    return tuple(row[name] for name in names)
