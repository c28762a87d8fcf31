"""Filters of rows for programs: a condition on one column of each table that can have one, and SELECT's answers by it.

The answers are filtered here, in Python, by the values that SELECT gave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tailrace_schemas.table import Column, Table
from tailrace_spark.shaping import split_conditions
from tailrace_spark.sinks.protocol import SweepingSink
from tests.oracle.comparison import Answer, Followed, Row
from tests.oracle.direct import Recorded

_INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint", "varint"})
_OTHERS: Final = frozenset({"text", "ascii", "uuid", "timeuuid", "date", "timestamp", "float", "double", "decimal"})


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A condition of [stream.where] for one table, and whether a row that SELECT gave matches."""

    where: str
    matches: Callable[[Row], bool]


def filters_of(recorded: Recorded) -> dict[str, TableFilter]:
    """By table, where a filter fits it; the same ones each time. One that tells rows apart, where there is one."""
    random = Random(recorded.seed)
    filters: dict[str, TableFilter] = {}
    for answer in recorded.answers:
        columns = [] if answer.table.static else [one for one in answer.table.regular if _fits(one)]
        possible = [_filter(answer, column, random) for column in columns]
        telling = [one for one in possible if _tells_apart(one, answer)]
        if possible:
            filters[str(answer.table)] = random.choice(telling or possible)
    return filters


def are_told_apart(recorded: Recorded) -> bool:
    """Whether of some table some rows match and some do not."""
    filters = filters_of(recorded)
    return any(
        str(answer.table) in filters and _tells_apart(filters[str(answer.table)], answer) for answer in recorded.answers
    )


def _tells_apart(condition: TableFilter, answer: Answer) -> bool:
    return 0 < sum(map(condition.matches, answer.rows)) < len(answer.rows)


def by_filters(recorded: Recorded, filters: Mapping[str, TableFilter]) -> Recorded:
    """The same program, with what SELECT answers of rows that match."""
    answers = [
        replace(answer, rows=tuple(row for row in answer.rows if _matches(filters, answer.table, row)))
        for answer in recorded.answers
    ]
    return replace(recorded, answers=tuple(answers))


@dataclass(frozen=True, slots=True)
class FilteredStore:
    """A store whose sink is asked for rows."""

    store: Followed
    filters: Mapping[str, TableFilter]

    def open(self, clock: Callable[[], float]) -> SweepingSink:
        sink = self.store.open(clock)
        filtering = sink.capabilities.filtering
        assert filtering is not None
        rows, _ = split_conditions({name: one.where for name, one in self.filters.items()}, "stream.where")
        filtering.filter_rows(rows)
        return sink

    def rows(self, table: Table) -> list[Row]:
        return self.store.rows(table)

    def set_aside(self) -> Sequence[tuple[str, str]]:
        return self.store.set_aside()


def _fits(column: Column) -> bool:
    return column.type.kind in _INTEGERS | _OTHERS | {"boolean"} and not column.type.multicell


def _filter(answer: Answer, column: Column, random: Random) -> TableFilter:
    column_index = [one.name for one in (*answer.table.key, *answer.table.columns)].index(column.name)
    name = f"row.`{column.name}`"
    if column.type.kind == "boolean":
        return TableFilter(name, lambda row: row[column_index] is True)
    numbers = [value for row in answer.rows if isinstance(value := row[column_index], int)]
    if column.type.kind in _INTEGERS and numbers:
        least = random.choice([number for number in numbers if number > min(numbers)] or numbers)
        return TableFilter(
            f"{name} >= {least}", lambda row: isinstance(value := row[column_index], int) and value >= least
        )
    return TableFilter(f"{name} IS NOT NULL", lambda row: row[column_index] is not None)


def _matches(filters: Mapping[str, TableFilter], table: Table, row: Row) -> bool:
    return str(table) not in filters or filters[str(table)].matches(row)
