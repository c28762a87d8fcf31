"""Whether a filter can be asked of a table: by its text and the table's definition, without Spark.

Spark's own analyser has the last word, in the worker: types and functions are not looked at here.
"""

from __future__ import annotations

import difflib
from typing import Any, Final

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace_schemas.table import Table
from tailrace_spark.shaping.filter_columns import CHANGE, COLUMNS, FilterColumns
from tailrace_spark.shaping.row_conditions import place_of

_STRUCTS: Final = (CHANGE, COLUMNS)


class ConditionError(Exception):
    """What is wrong with a condition, or with one column of it."""


def names_of(text: str) -> list[tuple[str, ...]]:
    """The columns that a condition asks for, each as the steps of its name. Raises ConditionError."""
    try:
        expression = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        raise ConditionError(f"{text!r} is no expression of Spark SQL: {place_of(error)}") from None
    if expression.find(exp.Query) is not None:
        raise ConditionError(f"{text!r} has a query in it; a filter sees one change at a time")
    if not isinstance(expression, exp.Condition):
        raise ConditionError(f"{text!r} is no condition: it must be true or false")
    columns = (tuple(step.name for step in column.parts) for column in expression.find_all(exp.Column))
    return list(dict.fromkeys(columns))


def require_columns(names: list[tuple[str, ...]], table: Table, *, written: bool) -> None:
    """Raise ConditionError for a column that no change of the table has.

    `written`: the sink keeps a log of changes, so that a filter may ask for what a change writes.
    """
    schema: Any = FilterColumns(table, written=written).schema
    for name in names:
        _require(name, table, schema, written=written)


def _require(name: tuple[str, ...], table: Table, schema: Any, *, written: bool) -> None:
    top = _field(name[0], schema)
    if top is None:
        raise ConditionError(_unknown(name[0], table, schema, written=written))
    if top.name in _STRUCTS and pa.types.is_struct(top.type) and len(name) > 1 and _field(name[1], top.type) is None:
        below = [top.type.field(index).name for index in range(top.type.num_fields)]
        raise ConditionError(f"{'.'.join(name)}: {top.name} has {', '.join(below)}")


def _field(name: str, fields: Any) -> Any:
    """The field of a name, in whatever letters; None where there is none."""
    return next((field for field in fields if field.name.lower() == name.lower()), None)


def _unknown(name: str, table: Table, schema: Any, *, written: bool) -> str:
    if any(column.name.lower() == name.lower() for column in table.columns):
        if written:
            return f"{name} is not of the key of {table}: ask for columns.{name}, which is what a change writes into it"
        return (
            f"{name} is not of the key of {table}: of other columns a change has only what it writes, so no table "
            f"could follow the filter. It may ask for {', '.join(schema.names)}"
        )
    close = difflib.get_close_matches(name, schema.names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"it may ask for {', '.join(schema.names)}"
    return f"{table} has no column {name}; {hint}"
