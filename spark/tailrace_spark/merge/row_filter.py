"""Filters of rows by columns outside the key, evaluated of a row as it is after a merge. Plain data, and pure.

A condition has comparisons with constants, IN, BETWEEN, LIKE and IS NOT NULL, put together by AND, OR and NOT. It has
the three values of SQL. None of its forms turns true where a value becomes null. So only a change of a row makes it
begin to match. No expiry does, and no deletion above it: a store need not look for such rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from math import isnan
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Column, Table

Literal = tuple[str, Any]
"""Its kind, and its value: number (text), text, bool, date (days since 1970), timestamp (microseconds since 1970)."""
Node = tuple[Any, ...]
"""all or any (nodes); not (node); compare (operator, column, literal); in (column, literals); like (column, pattern);
known (column)."""

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint", "varint"})
_FLOATS: Final = frozenset({"float", "double"})
_TEXTS: Final = frozenset({"text", "ascii"})
_UUIDS: Final = frozenset({"uuid", "timeuuid"})
_WANTED: Final = {
    **dict.fromkeys(_INTEGERS | _FLOATS | {"decimal"}, "number"),
    **dict.fromkeys(_TEXTS | _UUIDS, "text"),
    "boolean": "bool",
    "date": "date",
    "timestamp": "timestamp",
}
_SAYS: Final = {
    "number": "a number",
    "text": "a text in quotes",
    "bool": "true or false",
    "date": "a date, as DATE'2026-01-31'",
    "timestamp": "a time with its zone, as TIMESTAMP'2026-01-31 12:00:00Z'",
}

Values = Sequence[object]
_Test = Callable[[Values], bool | None]


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
    return next((of for pattern, of in filters if fnmatchcase(str(table), pattern)), None)


def predicate_of(filters: RowFilters, table: Table) -> RowPredicate | None:
    """The filter of a table's rows, by one definition of it. Raises SettingsError where that does not fit."""
    row_filter = filter_of(filters, table)
    return None if row_filter is None else RowPredicate(row_filter, table)


class RowPredicate:
    """A filter by one definition of a table."""

    def __init__(self, row_filter: RowFilter, table: Table) -> None:
        """Raises SettingsError for a column or a constant that does not fit."""
        self._setting = f"{table}: {row_filter.setting}: {row_filter.text!r}"
        self._table = table
        if table.static:
            raise self._refused(
                "a table with static columns shows these beside its rows, and alone where a partition has none: its "
                "rows cannot be filtered by other columns than the key's"
            )
        self._columns: list[Column] = []
        self._test = self._compiled(row_filter.node)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that it asks for."""
        return tuple(self._columns)

    def holds(self, values: Values) -> bool:
        """Whether it is true of a row: `values` are those of `columns`, as tailrace_schemas.cql.values has them."""
        return self._test(values) is True

    def _compiled(self, node: Node) -> _Test:
        kind, *parts = node
        match kind:
            case "all":
                return _all([self._compiled(child) for child in parts[0]])
            case "any":
                return _any([self._compiled(child) for child in parts[0]])
            case "not":
                return _not(self._compiled(parts[0]))
            case "compare":
                return self._compare(*parts)
            case "in":
                return self._in(*parts)
            case "like":
                return self._like(*parts)
        index, _ = self._column(parts[0])
        return lambda values: values[index] is not None

    def _compare(self, sign: str, name: str, literal: Literal) -> _Test:
        index, column = self._column(name)
        if column.type.kind in _UUIDS and sign not in ("=", "<>"):
            raise self._refused(f"row.{name} is a {column.type.kind}, which is equal to another or not: use = or <>")
        compare, read, constant = _COMPARE[sign], _reader(column.type), self._constant(column, literal)
        return lambda values: None if values[index] is None else compare(read(values[index]), constant)

    def _in(self, name: str, literals: Sequence[Literal]) -> _Test:
        return _any([self._compare("=", name, literal) for literal in literals])

    def _like(self, name: str, pattern: str) -> _Test:
        index, column = self._column(name)
        if column.type.kind not in _TEXTS:
            raise self._refused(f"row.{name} is {column.type}: LIKE is for text")
        matches = _pattern(pattern).fullmatch
        return lambda values: None if values[index] is None else matches(str(values[index])) is not None

    def _constant(self, column: Column, literal: Literal) -> Any:
        kind, value = literal
        comparable = _WANTED[column.type.kind]
        if kind != comparable:
            raise self._refused(f"row.{column.name} is {column.type}: compare it with {_SAYS[comparable]}")
        # Spark casts a constant to double beside one, so that 0.1 is the nearest double there too.
        if column.type.kind in _FLOATS:
            return _float_key(float(value))
        if kind == "number":
            return Decimal(value)
        return value.lower() if column.type.kind in _UUIDS else value

    def _column(self, name: str) -> tuple[int, Column]:
        """The place among the values of a column, which has its name in whatever letters, as in Spark."""
        regular = self._table.regular
        named = [column for column in regular if column.name == name]
        named = named or [column for column in regular if column.name.lower() == name.lower()]
        if len(named) != 1:
            listed = ", ".join(f"row.{column.name}" for column in regular if column.type.kind in _WANTED)
            raise self._refused(f"no column row.{name}; it may ask for {listed or 'none of its columns'}")
        [column] = named
        if column.type.multicell or column.type.kind not in _WANTED:
            raise self._refused(f"row.{name} is {column.type}: a filter may ask for {', '.join(sorted(_WANTED))}")
        if column not in self._columns:
            self._columns.append(column)
        return self._columns.index(column), column

    def _refused(self, words: str) -> SettingsError:
        return SettingsError(f"{self._setting}: {words}")


def _all(tests: Sequence[_Test]) -> _Test:
    def test(values: Values) -> bool | None:
        unknown = False
        for each in tests:
            result = each(values)
            # SQL's AND: false beats unknown, and unknown beats true.
            if result is False:
                return False
            unknown = unknown or result is None
        return None if unknown else True

    return test


def _any(tests: Sequence[_Test]) -> _Test:
    # De Morgan's law holds for three values too.
    return _not(_all([_not(each) for each in tests]))


def _not(test: _Test) -> _Test:
    def negated(values: Values) -> bool | None:
        result = test(values)
        return None if result is None else not result

    return negated


def _reader(of: CqlType) -> Callable[[Any], Any]:
    """Makes what is compared of a value that is not null."""
    if of.kind in _FLOATS:
        return lambda value: _float_key(float(value))
    # As text, for no float would keep their digits (tailrace_schemas.cql.values).
    if of.kind in ("varint", "decimal"):
        return Decimal
    # Cassandra's timestamps are milliseconds, Spark's constants have microseconds.
    if of.kind == "timestamp":
        return lambda milliseconds: 1000 * milliseconds
    return (lambda value: str(value).lower()) if of.kind in _UUIDS else _same


def _same(value: Any) -> Any:
    return value


def _float_key(value: float) -> tuple[bool, float]:
    """NaN equals itself, and is larger than all others, as in Spark."""
    return (True, 0.0) if isnan(value) else (False, value)


def _pattern(like: str) -> re.Pattern[str]:
    """A pattern of LIKE: % for any text, _ for a character, and a backslash before what stands for itself."""
    parts: list[str] = []
    for escaped, sign in re.findall(r"\\(.)|(.)", re.sub(r"(?<!\\)%+", "%", like), re.DOTALL):
        parts.append(re.escape(escaped) if escaped else {"%": ".*", "_": "."}.get(sign) or re.escape(sign))
    return re.compile("".join(parts), re.DOTALL)
