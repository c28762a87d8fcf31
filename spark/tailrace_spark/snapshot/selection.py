"""What is selected of a table, column by column, and the statement that selects it. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tailrace_schemas.cql.types import quote_identifier
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Column, ColumnKind, Table

Kind = Literal["value", "writetime", "ttl"]
Release = tuple[int, ...]
"""Up to three numbers, such as (5, 0, 9)."""
_COLLECTIONS: Final = frozenset({"list", "set", "map"})
_TELL_OF_FROZEN: Final[tuple[tuple[Release, Release], ...]] = (
    ((3, 0, 28), (3, 1)),
    ((3, 11, 14), (4,)),
    ((4, 0, 6), (1000,)),
)
"""Releases that tell the times of frozen collections: from the first on, and before the second."""


@dataclass(frozen=True, slots=True)
class Selected:
    """One column of the result: a column's value, or its WRITETIME or TTL.

    `elements`: WRITETIME and TTL are lists, one of each element or field.
    """

    column: Column
    kind: Kind = "value"
    elements: bool = False

    @property
    def cql(self) -> str:
        """The selector."""
        name = quote_identifier(self.column.name)
        return name if self.kind == "value" else f"{self.kind.upper()}({name})"


def columns_of(table: Table, names: Sequence[str] | None) -> tuple[Column, ...]:
    """The named columns, in this order; None: all of them, key first. Raises SettingsError for unknown names."""
    columns = (*table.key, *table.columns)
    if names is None:
        return columns
    by_name = {column.name: column for column in columns}
    unknown = [name for name in names if name not in by_name]
    if unknown or not names:
        raise SettingsError(
            f"columns: {table} has no column {', '.join(map(repr, unknown)) or 'of no name'}; "
            f"its columns are {', '.join(by_name)}"
        )
    return tuple([by_name[name] for name in dict.fromkeys(names)])


def has_times(column: Column, release: Release) -> bool:
    """Whether a release, such as (5, 0, 9), can tell the column's WRITETIME and TTL.

    None tells those of keys and counters. Those of elements and fields exist from 5.0 on (CASSANDRA-8877). Those of
    frozen collections were refused, with those of others, until CASSANDRA-17628.
    """
    if column.kind in (ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING) or column.type.kind == "counter":
        return False
    if column.type.multicell:
        return release >= (5, 0)
    return column.type.kind not in _COLLECTIONS or any(first <= release < end for first, end in _TELL_OF_FROZEN)


def selection(columns: Sequence[Column], release: Release, *, times: bool) -> tuple[Selected, ...]:
    """The result's columns: the values, then with `times` WRITETIME and TTL of each column that has them."""
    values = tuple([Selected(column) for column in columns])
    if not times:
        return values
    timed = [column for column in columns if has_times(column, release)]
    written = [Selected(column, "writetime", column.type.multicell) for column in timed]
    return (*values, *written, *[Selected(column, "ttl", column.type.multicell) for column in timed])


def statement(
    table: Table, selected: Sequence[Selected], condition: str | None = None, *, allow_filtering: bool = False
) -> str:
    """The SELECT of a range of tokens, whose two values are the range's start (exclusive) and end (inclusive).

    `condition` is CQL that rows have to meet besides. Raises SettingsError where it is more than a condition.
    """
    restriction = "" if condition is None else f" AND {_checked(condition)}"
    filtering = " ALLOW FILTERING" if allow_filtering else ""
    return f"{_of_range(table, [item.cql for item in selected])}{restriction}{filtering}"


def token_statement(table: Table) -> str:
    """The SELECT of the tokens of a range's rows, with the same two values as `statement`."""
    return _of_range(table, [_token(table)])


def statement_by_key(table: Table, key: Sequence[str], columns: Sequence[str], *, static: bool) -> str:
    """The SELECT of these columns of a row, by the values of its key's columns.

    Of a static row that is the partition key alone. All names are those that the table has now.
    """
    conditions = " AND ".join([f"{quote_identifier(name)} = ?" for name in key])
    names = [quote_identifier(name) for name in (key[0], *columns)]
    return f"{_select(table, names)} WHERE {conditions}{' LIMIT 1' if static else ''}"


def _of_range(table: Table, selectors: Sequence[str]) -> str:
    return f"{_select(table, selectors)} WHERE {_token(table)} > ? AND {_token(table)} <= ?"


def _select(table: Table, selectors: Sequence[str]) -> str:
    source = f"{quote_identifier(table.keyspace)}.{quote_identifier(table.name)}"
    return f"SELECT {', '.join(selectors)} FROM {source}"  # noqa: S608 - all names are quoted


def _token(table: Table) -> str:
    return f"token({', '.join([quote_identifier(column.name) for column in table.partition_key])})"


def _checked(condition: str) -> str:
    text = condition.strip()
    outside = "".join(text.replace("''", "").replace('""', "").split("'")[::2])
    if not text or ";" in outside or "?" in outside:
        raise SettingsError(
            "filter is a CQL condition without question marks and semicolons, such as \"status = 'open'\""
        )
    return text
