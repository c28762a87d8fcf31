"""The parts of a condition that ask for `row.NAME`, a column outside the key: read without Spark, as a sink needs them.

Executors merge rows in tasks, which have no session of Spark. So these parts are data that go there with the sink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace_schemas.errors import SettingsError
from tailrace_spark.merge.row_filter import Literal, Node, RowFilter, RowFilters

ROW: Final = "row"
_MENTIONS: Final = re.compile(r"\brow\b`?\s*\.", re.IGNORECASE)
_SIGNS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAY: Final = (
    "of a row's other columns it may have comparisons with constants, IN, BETWEEN, LIKE and IS NOT NULL, put together "
    "by AND, OR and NOT"
)


class _UnfitError(Exception):
    """Why a part is not one that can be asked of rows."""


def split_conditions(where: Mapping[str, str], setting: str) -> tuple[RowFilters, dict[str, str]]:
    """By pattern: what is asked of rows, and what is asked of changes, in Spark SQL; no rows: the first is empty.

    Raises SettingsError for a part that asks for rows and that cannot be.
    """
    rows: list[tuple[str, RowFilter | None]] = []
    changes: dict[str, str] = {}
    for pattern, text in where.items():
        row_filter, rest = _split(f'{setting} "{pattern}"', text)
        rows.append((pattern, row_filter))
        changes[pattern] = "true" if rest is None else rest
    if all(text == "true" and row is not None for text, (_, row) in zip(changes.values(), rows, strict=True)):
        changes = {}
    return (tuple(rows) if any(row is not None for _, row in rows) else ()), changes


def _split(setting: str, text: str) -> tuple[RowFilter | None, str | None]:
    if not _MENTIONS.search(text):
        return None, text
    try:
        parts = _conjuncts(sqlglot.parse_one(text, dialect="spark"))
        of_rows = [conjunct for conjunct in parts if _names_row(conjunct)]
        if not of_rows:
            return None, text
        node: Node = ("all", tuple(_node(conjunct, negated=False) for conjunct in of_rows))
    except (SqlglotError, RecursionError) as error:
        raise SettingsError(f"{setting}: {text!r} is no expression of Spark SQL: {place_of(error)}") from None
    except _UnfitError as error:
        raise SettingsError(f"{setting}: {text!r}: {error}; {_MAY}") from None
    rest = [conjunct.sql(dialect="spark") for conjunct in parts if conjunct not in of_rows]
    return RowFilter(setting, text, node), " AND ".join(f"({condition})" for condition in rest) or None


def place_of(error: Exception) -> str:
    """Where a text cannot be read, in words of ours: those of the parser name its classes."""
    faults: list[dict[str, Any]] = getattr(error, "errors", [])
    if not faults:
        return "it cannot be read; look for a quote or a parenthesis that is not closed"
    sign, end = str(faults[0]["highlight"]), str(faults[0]["end_context"]).strip()
    fault = f"what follows {sign!r} does not fit" if end else f"something is missing behind {sign!r}"
    return f"{fault} (column {faults[0]['col']})"


def _conjuncts(expression: exp.Expr) -> list[exp.Expr]:
    expression = expression.unnest()
    if isinstance(expression, exp.And):
        return [*_conjuncts(expression.left), *_conjuncts(expression.right)]
    return [expression]


def _names_row(expression: exp.Expr) -> bool:
    return any(len(column.parts) > 1 and _is_row(column) for column in expression.find_all(exp.Column))


def _is_row(column: exp.Column) -> bool:
    return column.parts[0].name.lower() == ROW


def _node(expression: exp.Expr, *, negated: bool) -> Node:
    expression = expression.unnest()
    match expression:
        case exp.And() | exp.Or():
            parts = _node(expression.left, negated=negated), _node(expression.right, negated=negated)
            return "all" if isinstance(expression, exp.And) else "any", parts
        case exp.Not(this=exp.Is() as test):
            if negated or not isinstance(test.expression, exp.Null):
                raise _UnfitError("whether a value is missing cannot be asked, as one goes missing by time alone")
            return "known", _name(test.this)
        case exp.Not():
            return "not", _node(expression.this, negated=not negated)
        case exp.In() if expression.expressions and not expression.args.get("query"):
            return "in", _name(expression.this), tuple(_literal(item) for item in expression.expressions)
        case exp.Between():
            name = _name(expression.this)
            low, high = _literal(expression.args["low"]), _literal(expression.args["high"])
            return "all", (("compare", ">=", name, low), ("compare", "<=", name, high))
        case exp.Like():
            kind, pattern = _literal(expression.expression)
            if kind != "text":
                raise _UnfitError(f"{expression.sql('spark')} needs a pattern in quotes")
            return "like", _name(expression.this), pattern
        case exp.Column():
            return "compare", "=", _name(expression), ("bool", True)
    return _comparison(expression)


def _comparison(expression: exp.Expr) -> Node:
    sign = _SIGNS.get(type(expression))
    if sign is None:
        if isinstance(expression, exp.Is | exp.NullSafeEQ):
            raise _UnfitError("whether a value is missing cannot be asked, as one goes missing by time alone")
        raise _UnfitError(f"{expression.sql('spark')} is not one of its forms")
    left_operand, right_operand = expression.this.unnest(), expression.expression.unnest()
    if isinstance(left_operand, exp.Column):
        return "compare", sign, _name(left_operand), _literal(right_operand)
    return "compare", _TURNED[sign], _name(right_operand), _literal(left_operand)


def _name(expression: exp.Expr) -> str:
    column = expression.unnest()
    if not isinstance(column, exp.Column):
        raise _UnfitError(f"{expression.sql('spark')} is no column")
    if len(column.parts) != 2 or not _is_row(column):
        raise _UnfitError(f"{column.sql('spark')} is no row.NAME: a part asks either for these or for other names")
    return column.parts[1].name


def _literal(expression: exp.Expr) -> Literal:
    value = expression.unnest()
    match value:
        case exp.Boolean():
            return "bool", bool(value.this)
        case exp.Neg(this=exp.Literal(is_string=False) as number):
            return "number", f"-{number.this}"
        case exp.Literal():
            return "text" if value.is_string else "number", str(value.this)
        case exp.Cast(this=exp.Literal() as text, to=exp.DataType() as to):
            return _typed(str(text.this), to, expression)
    raise _UnfitError(f"{expression.sql('spark')} is no constant")


def _typed(text: str, to: exp.DataType, expression: exp.Expr) -> Literal:
    """A constant with its type in front of it, or behind it as 5L."""
    try:
        if to.is_type("date"):
            return "date", (date.fromisoformat(text) - _EPOCH.date()).days
        if to.is_type("timestamp", "timestamptz"):
            moment = datetime.fromisoformat(text.strip().replace("UTC", "Z"))
            if moment.tzinfo is None:
                raise _UnfitError(f"{expression.sql('spark')} has no zone: write a Z or an offset behind it")
            elapsed = moment - _EPOCH
            return "timestamp", (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    except ValueError:
        raise _UnfitError(f"{expression.sql('spark')} is no date or time that there is") from None
    if to.is_type("bigint", "smallint", "tinyint", "int", "double", "float", "decimal"):
        return "number", text
    raise _UnfitError(f"{expression.sql('spark')} is no constant of a type that a filter has")
