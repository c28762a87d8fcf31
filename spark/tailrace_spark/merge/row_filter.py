"""Filters of rows by columns outside the key, evaluated of a row as it is after a merge. Plain data, and pure.

None of their forms turns true where a value becomes null. So only a change of a row makes it begin to match. No expiry
does, and no deletion above it: a store need not look for such rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Column, Table
from tailrace_spark.merge.condition import COMPARED_AS, Name, Node, Operand, UnfitError, Values, test_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition of the settings; `setting` names it in errors. It can be pickled."""

    setting: str
    text: str
    node: Node


RowFilters = tuple[tuple[str, RowFilter | None], ...]
"""By pattern of keyspace and table, of which the first that matches counts; None: it asks nothing of rows."""


def filter_of(filters: RowFilters, table: Table) -> RowFilter | None:
    """The filter of a table's rows."""
    return first_match(filters, table)


def first_match(entries: Iterable[tuple[str, T | None]], table: Table) -> T | None:
    """What the first pattern has that matches a table; None where none does."""
    # Names of tables tell letters apart, on every system: fnmatch alone asks the operating system.
    return next((entry for pattern, entry in entries if fnmatchcase(str(table), pattern)), None)


def predicate_of(filters: RowFilters, table: Table) -> RowPredicate | None:
    """The filter of a table's rows, by one definition of it. Raises SettingsError where that does not fit."""
    row_filter = filter_of(filters, table)
    return None if row_filter is None else RowPredicate(row_filter, table)


class RowPredicate:
    """A filter by one definition of a table."""

    def __init__(self, row_filter: RowFilter, table: Table) -> None:
        """Raises SettingsError for a column or a constant that does not fit."""
        self._table = table
        self._columns: list[Column] = []
        try:
            if table.static:
                raise UnfitError(
                    "a table with static columns shows these beside its rows, and alone where a partition has none. "
                    "Its rows cannot be filtered by other columns than the key's"
                )
            self._test = test_of(row_filter.node, self._operand)
        except UnfitError as error:
            raise SettingsError(f"{table}: {row_filter.setting}: {row_filter.text!r}: {error}") from None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that it asks for."""
        return tuple(self._columns)

    def holds(self, values: Values) -> bool:
        """Whether it is true of a row: `values` are those of `columns`, as tailrace_schemas.cql.values has them."""
        return self._test(values) is True

    def _operand(self, name: Name) -> Operand:
        regular = self._table.regular
        column = column_of(regular, name[-1])
        if column is None:
            listed = ", ".join(f"row.{column.name}" for column in regular if column.type.kind in COMPARED_AS)
            raise UnfitError(f"no column row.{name[-1]}; it may ask for {listed or 'none of its columns'}")
        if column not in self._columns:
            self._columns.append(column)
        return Operand(self._columns.index(column), column.type, f"row.{column.name}")


def column_of(columns: tuple[Column, ...], name: str) -> Column | None:
    """The column of a name, in whatever letters as in Spark; None where there is none, or more than one."""
    # CQL's quoted names may differ by letters alone: an exact one comes first.
    named = [column for column in columns if column.name == name]
    named = named or [column for column in columns if column.name.lower() == name.lower()]
    return named[0] if len(named) == 1 else None
