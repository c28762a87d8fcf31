"""The conditions of [stream.where], read: parts that ask for rows (`row.NAME`) and parts that ask for changes.

Both are data that go to tasks and sinks as they are. The words are Spark SQL's, of which few forms are taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace_schemas.errors import SettingsError
from tailrace_spark.merge.condition import Literal, Name, Node, RowFilter, RowFilters, UnfitError

ROW: Final = "row"
LONGEST: Final = 10_000
"""A condition has at most so many characters."""
_DEEPEST: Final = 100
_SIGNS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PLAIN: Final[tuple[type[exp.Expr], ...]] = (exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Like, *_SIGNS)
_READ: Final = frozenset({"this", "expression", "expressions", "low", "high", "negate"})
"""What is read of an expression. One with anything else means something else: with ESCAPE, ANY or SYMMETRIC."""
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAY: Final = (
    "a filter may have comparisons with constants, IN, BETWEEN, LIKE and IS NULL, put together by AND, OR and NOT; for "
    "other expressions read tailrace_spark.changes() and filter with Spark"
)


@dataclass(frozen=True, slots=True)
class ChangeCondition:
    """The parts of a condition, put together by AND, that ask for changes; `setting` names it in errors."""

    setting: str
    text: str
    parts: tuple[Node, ...]


ChangeConditions = tuple[tuple[str, ChangeCondition | None], ...]
"""By pattern of keyspace and table, of which the first that matches counts; None: it asks nothing of changes."""


def split_conditions(where: Mapping[str, str], setting: str) -> tuple[RowFilters, ChangeConditions]:
    """What is asked of rows, and what is asked of changes; either is empty where nothing is.

    Raises SettingsError for a text that is no condition of a filter.
    """
    rows: list[tuple[str, RowFilter | None]] = []
    changes: list[tuple[str, ChangeCondition | None]] = []
    for pattern, text in where.items():
        row_filter, condition = _split(f'{setting} "{pattern}"', text)
        rows.append((pattern, row_filter))
        changes.append((pattern, condition))
    return (
        tuple(rows) if any(row_filter is not None for _, row_filter in rows) else (),
        tuple(changes) if any(condition is not None for _, condition in changes) else (),
    )


def _split(setting: str, text: str) -> tuple[RowFilter | None, ChangeCondition | None]:
    if len(text) > LONGEST:
        raise SettingsError(f"{setting}: a condition has at most {LONGEST} characters, and this one has {len(text)}")
    try:
        conjuncts = list(_parts(sqlglot.parse_one(text, dialect="spark"), exp.And))
        of_rows = [conjunct for conjunct in conjuncts if any(map(_is_row, conjunct.find_all(exp.Column)))]
        rows = tuple(_Reader(of_rows=True).node(conjunct) for conjunct in of_rows)
        changes = tuple(_Reader(of_rows=False).node(conjunct) for conjunct in conjuncts if conjunct not in of_rows)
    except (SqlglotError, RecursionError) as error:
        raise SettingsError(f"{setting}: {text!r} is no expression of Spark SQL: {_place_of(error)}") from None
    except UnfitError as error:
        raise SettingsError(f"{setting}: {text!r}: {error}; {_MAY}") from None
    return (
        RowFilter(setting, text, ("all", rows)) if rows else None,
        ChangeCondition(setting, text, changes) if changes else None,
    )


def _place_of(error: Exception) -> str:
    """Where a text cannot be read, in words of ours: those of the parser name its classes."""
    faults: list[dict[str, Any]] = getattr(error, "errors", [])
    if not faults:
        return "it cannot be read; look for a quote or a parenthesis that is not closed"
    sign, end = str(faults[0]["highlight"]), str(faults[0]["end_context"]).strip()
    fault = f"what follows {sign!r} does not fit" if end else f"something is missing behind {sign!r}"
    return f"{fault} (column {faults[0]['col']})"


def _parts(expression: exp.Expr, kind: type[exp.Connector]) -> Iterator[exp.Expr]:
    """What AND, or OR, puts together. A long chain of them is a deep tree: nothing descends into it call by call."""
    waiting = [expression]
    while waiting:
        operand = waiting.pop().unnest()
        if isinstance(operand, kind):
            waiting += [operand.right, operand.left]
        else:
            yield operand


def _is_row(column: exp.Column) -> bool:
    return len(column.parts) > 1 and column.parts[0].name.lower() == ROW


class _Reader:
    """Reads a part; `of_rows`: one that asks for row.NAME, and may ask for nothing else."""

    def __init__(self, *, of_rows: bool) -> None:
        self._of_rows = of_rows

    def node(self, expression: exp.Expr, *, negated: bool = False, depth: int = 0) -> Node:
        """Raises UnfitError. `negated`: it stands below an odd number of NOT."""
        expression = expression.unnest()
        if depth > _DEEPEST:
            raise UnfitError(f"more than {_DEEPEST} steps deep")
        if isinstance(expression, exp.And | exp.Or):
            kind = exp.And if isinstance(expression, exp.And) else exp.Or
            nodes = [self.node(operand, negated=negated, depth=depth + 1) for operand in _parts(expression, kind)]
            return "all" if kind is exp.And else "any", tuple(nodes)
        if isinstance(expression, exp.Boolean):
            return "always", bool(expression.this)
        if isinstance(expression, exp.Column):
            return "compare", "=", self._name(expression), ("bool", True)
        if isinstance(expression, _PLAIN):
            unread = {name for name, value in expression.args.items() if value} - _READ
            if not unread:
                return self._plain(expression, negated=negated, depth=depth)
        raise UnfitError(_refused(expression))

    def _plain(self, expression: exp.Expr, *, negated: bool, depth: int) -> Node:
        if expression.args.get("negate"):
            positive = expression.copy()
            positive.set("negate", None)
            return "not", self._plain(positive, negated=not negated, depth=depth)
        match expression:
            case exp.Not():
                return "not", self.node(expression.this, negated=not negated, depth=depth + 1)
            case exp.Is(expression=exp.Null()):
                if self._of_rows and not negated:
                    raise UnfitError(
                        "whether a value is missing cannot be asked of a row, as one goes missing by time alone"
                    )
                return "null", self._name(expression.this)
            case exp.In() if expression.expressions:
                return "in", self._name(expression.this), tuple(_literal(item) for item in expression.expressions)
            case exp.Between():
                name = self._name(expression.this)
                low, high = _literal(expression.args["low"]), _literal(expression.args["high"])
                return "all", (("compare", ">=", name, low), ("compare", "<=", name, high))
            case exp.Like():
                kind, pattern = _literal(expression.expression)
                if kind != "text":
                    raise UnfitError(f"{expression.sql('spark')} needs a pattern in quotes")
                return "like", self._name(expression.this), pattern
        sign = _SIGNS.get(type(expression))
        if sign is None:
            raise UnfitError(_refused(expression))
        left_operand, right_operand = expression.this.unnest(), expression.expression.unnest()
        if isinstance(right_operand, exp.Column) and not isinstance(left_operand, exp.Column):
            return "compare", _TURNED[sign], self._name(right_operand), _literal(left_operand)
        return "compare", sign, self._name(left_operand), _literal(right_operand)

    def _name(self, expression: exp.Expr) -> Name:
        column = expression.unnest()
        if not isinstance(column, exp.Column):
            raise UnfitError(_refused(column, "no column"))
        if self._of_rows and not (_is_row(column) and len(column.parts) == 2):
            raise UnfitError(f"{column.sql('spark')} is no row.NAME: a part asks either for these or for other names")
        return tuple(step.name for step in column.parts)


def _refused(expression: exp.Expr, missing: str = "not one of its forms") -> str:
    """What an expression is that no filter takes; `missing` says what stands there otherwise."""
    text = expression.sql("spark")
    if expression.find(exp.Query) is not None:
        return f"{text} has a query in it; a filter sees one change at a time"
    if expression.find(exp.Parameter, exp.Placeholder) is not None:
        return f"{text} has a variable in it, which nobody fills in"
    if isinstance(expression, exp.Func):
        return f"{text} is a function"
    return f"{text} is {missing}"


def _literal(expression: exp.Expr) -> Literal:
    value = expression.unnest()
    match value:
        case exp.Boolean():
            return "bool", bool(value.this)
        case exp.Neg():
            kind, digits = _literal(value.this)
            if kind == "number":
                return kind, digits.removeprefix("-") if digits.startswith("-") else f"-{digits}"
        case exp.Literal(is_string=True):
            return "text", str(value.this)
        case exp.Literal() if _NUMBER.fullmatch(str(value.this)):
            return "number", str(value.this)
        case exp.HexString():
            digits = str(value.this)
            return "bytes", bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))
        case exp.Cast(this=exp.Literal() as text, to=exp.DataType() as to):
            return _typed(str(text.this), to, expression)
    raise UnfitError(_refused(value, "no constant"))


def _typed(text: str, to: exp.DataType, expression: exp.Expr) -> Literal:
    """A constant with its type in front of it, or behind it as 5L."""
    try:
        if to.is_type("date"):
            return "date", (date.fromisoformat(text) - _EPOCH.date()).days
        if to.is_type("timestamp", "timestamptz"):
            moment = datetime.fromisoformat(text.strip().replace("UTC", "Z"))
            if moment.tzinfo is None:
                raise UnfitError(f"{expression.sql('spark')} has no zone: write a Z or an offset behind it")
            elapsed = moment - _EPOCH
            return "timestamp", (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    except ValueError:
        raise UnfitError(f"{expression.sql('spark')} is no date or time that there is") from None
    if to.is_type("bigint", "smallint", "tinyint", "int", "double", "float", "decimal") and _NUMBER.fullmatch(text):
        return "number", text
    raise UnfitError(f"{expression.sql('spark')} is no constant of a type that a filter has")
