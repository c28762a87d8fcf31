"""Conditions of filters, evaluated of a change or of a row as it is after a merge. Plain data, and pure.

A condition has comparisons with constants, IN, BETWEEN, LIKE and IS NULL, put together by AND, OR and NOT. It has the
three values of SQL. It can be evaluated of any values: what does not fit a column's type is refused before.

None of their forms turns true where a value becomes null. So only a change of a row makes it begin to match. No expiry
does, and no deletion above it: a store need not look for such rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from math import isnan
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, TypeVar

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Column, Table

Name = tuple[str, ...]
"""The steps of a column's name."""
Literal = tuple[str, Any]
"""Its kind, and its value: number (text), text, bool, bytes, date (days since 1970), timestamp (microseconds)."""
Node = tuple[Any, ...]
"""all or any (nodes); not (node); compare (operator, name, literal); in (name, literals); like (name, pattern);
null (name); always (bool)."""
Values = Sequence[object]
Test = Callable[[Values], bool | None]

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_FLOATS: Final = frozenset({"float", "double"})
_UNORDERED: Final = frozenset({"uuid", "timeuuid", "inet"})
COMPARED_AS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "varint", "decimal", "time", *_FLOATS), "number"),
    **dict.fromkeys(("text", "ascii", *_UNORDERED), "text"),
    "boolean": "bool",
    "blob": "bytes",
    "date": "date",
    "timestamp": "timestamp",
}
"""The kind of the constants that a column of each type is compared with; columns of other types are not compared."""
_SAYS: Final = {
    "number": "a number",
    "text": "a text in quotes",
    "bool": "true or false",
    "bytes": "bytes, as X'00FF'",
    "date": "a date, as DATE'2026-01-31'",
    "timestamp": "a time with its zone, as TIMESTAMP'2026-01-31 12:00:00Z'",
}
T = TypeVar("T")


class UnfitError(Exception):
    """Why a condition does not fit what it is asked of."""


@dataclass(frozen=True, slots=True)
class Operand:
    """What a name stands for: a place among the values, its type, and how errors call it."""

    index: int
    type: CqlType
    shown: str


OperandOf = Callable[[Name], Operand]
"""Raises UnfitError for a name that stands for nothing."""


def test_of(node: Node, operand_of: OperandOf) -> Test:
    """The test of values as tailrace_schemas.cql.values has them: true, false, or None for SQL's unknown.

    Raises UnfitError for a name or a constant that does not fit.
    """
    kind, *parts = node
    match kind:
        case "all":
            return _all([test_of(child, operand_of) for child in parts[0]])
        case "any":
            return _any([test_of(child, operand_of) for child in parts[0]])
        case "not":
            return _not(test_of(parts[0], operand_of))
        case "compare":
            sign, name, literal = parts
            return _compare(sign, _scalar(operand_of(name)), literal)
        case "in":
            name, literals = parts
            operand = _scalar(operand_of(name))
            return _any([_compare("=", operand, literal) for literal in literals])
        case "like":
            name, pattern = parts
            return _like(_scalar(operand_of(name)), pattern)
        case "null":
            index = _scalar(operand_of(parts[0])).index
            return lambda values: values[index] is None
    always: bool = parts[0]
    return lambda _: always


def names_in(node: Node) -> set[Name]:
    """All names that a condition asks for."""
    kind, *parts = node
    match kind:
        case "all" | "any":
            return set().union(*(names_in(child) for child in parts[0]))
        case "not":
            return names_in(parts[0])
        case "compare":
            return {parts[1]}
        case "always":
            return set()
    return {parts[0]}


def _scalar(operand: Operand) -> Operand:
    if operand.type.multicell or operand.type.kind not in COMPARED_AS:
        raise UnfitError(f"{operand.shown} is {operand.type}: a filter may ask for {', '.join(sorted(COMPARED_AS))}")
    return operand


def _compare(sign: str, operand: Operand, literal: Literal) -> Test:
    kind = operand.type.kind
    if kind in _UNORDERED and sign not in ("=", "<>"):
        raise UnfitError(f"{operand.shown} is a {kind}, which is equal to another or not: use = or <>")
    index, compare, read = operand.index, _COMPARE[sign], _reader(operand.type)
    constant = _constant(operand, literal)
    return lambda values: None if values[index] is None else compare(read(values[index]), constant)


def _like(operand: Operand, pattern: str) -> Test:
    if operand.type.kind not in ("text", "ascii"):
        raise UnfitError(f"{operand.shown} is {operand.type}: LIKE is for text")
    # Spark's LIKE tells letters apart; PostgreSQL's does too, SQLite's and MySQL's do not.
    index, matches = operand.index, _pattern(pattern).fullmatch
    return lambda values: None if values[index] is None else matches(str(values[index])) is not None


def _constant(operand: Operand, literal: Literal) -> Any:
    kind, value = literal
    comparable = COMPARED_AS[operand.type.kind]
    if kind != comparable:
        raise UnfitError(f"{operand.shown} is {operand.type}: compare it with {_SAYS[comparable]}")
    # SQL casts a constant to double beside one, so that 0.1 is the nearest double there too.
    if operand.type.kind in _FLOATS:
        return _float_key(float(value))
    if kind == "number":
        return Decimal(value)
    if operand.type.kind not in _UNORDERED:
        return value
    coder = codec(operand.type)
    try:  # as values are written: an address has many forms
        return coder.decode(coder.encode(value.lower()))
    except ValueError:
        raise UnfitError(f"{operand.shown} is {operand.type}, and {value!r} is none") from None


def _all(tests: Sequence[Test]) -> Test:
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


def _any(tests: Sequence[Test]) -> Test:
    # De Morgan's law holds for three values too.
    return _not(_all([_not(each) for each in tests]))


def _not(test: Test) -> Test:
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
    # Cassandra's timestamps are milliseconds, SQL's constants have microseconds.
    if of.kind == "timestamp":
        return lambda milliseconds: 1000 * milliseconds
    return _same


def _same(value: Any) -> Any:
    return value


def _float_key(value: float) -> tuple[bool, float]:
    """NaN equals itself, and is larger than all others, as in Spark."""
    return (True, 0.0) if isnan(value) else (False, value)


def _pattern(like: str) -> re.Pattern[str]:
    """A pattern of LIKE: % for any text, _ for a character, and a backslash before what stands for itself.

    It goes back at no letter, whoever has written it: each % but the last stands for as little as lets the next fit.
    """
    parts = [""]
    for escaped, sign in re.findall(r"\\(.)|(.)", like, re.DOTALL):
        if sign == "%":
            parts.append("")
        else:
            parts[-1] += re.escape(escaped) if escaped else "." if sign == "_" else re.escape(sign)
    first, *later = parts
    if later:
        first += "".join(f"(?>.*?{letters})" for letters in later[:-1] if letters) + f".*{later[-1]}"
    return re.compile(first, re.DOTALL)


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
