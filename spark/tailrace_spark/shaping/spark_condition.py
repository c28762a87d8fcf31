"""A condition in Spark SQL, checked and evaluated by Spark itself: by its analyser, on the driver, without a job."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from tailrace_schemas.errors import SettingsError

# What PySpark says in them when Spark refuses something has values of rows in it.
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class ValuesError(Exception):
    """Spark cannot evaluate a condition of these rows; the words have none of their values."""


@dataclass(frozen=True, slots=True)
class _Conjunct:
    """One of the conditions that AND puts together, and the columns that it asks for."""

    column: Column
    columns: frozenset[str]


class Condition:
    """One expression of the settings; `setting` names it in errors. Raises SettingsError where it is none."""

    def __init__(self, spark: SparkSession, setting: str, text: str) -> None:
        self._spark = spark
        self.setting = setting
        self.text = text
        session: Any = spark
        self._catalyst = session._jvm.org.apache.spark.sql  # noqa: SLF001 - PySpark has no parts of an expression
        try:
            with _silent():
                parser = session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - F.expr hides the tree
                parsed = parser.parseExpression(text)
        except ParseException as error:
            raise SettingsError(f"{setting}: {text!r} is no expression of Spark SQL: {_words(error)}") from None
        column = self._catalyst.classic.ExpressionUtils.column
        self._conjuncts = [ClassicColumn(column(conjunct)) for conjunct in _conjuncts(parsed)]

    def checked(self, schema: Any, hint: str) -> CheckedCondition:
        """The condition over the columns of a pyarrow Schema.

        Raises SettingsError where it is not true or false, would not always answer alike, or asks for other columns:
        with the hint.
        """
        frame = self._spark.createDataFrame(schema.empty_table())
        try:
            with _silent():
                self._require_settled(_condition(frame.where(self.text)))
                return CheckedCondition(
                    self._spark,
                    [_Conjunct(conjunct, _columns_of(frame.where(conjunct))) for conjunct in self._conjuncts],
                )
        except AnalysisException as error:
            raise SettingsError(f"{self.setting}: {self.text!r}: {_words(error)}; {hint}") from None

    def _require_settled(self, expression: Any) -> None:
        patterns = self._catalyst.catalyst.trees.TreePattern
        if expression.containsPattern(patterns.PLAN_EXPRESSION()):
            raise SettingsError(f"{self.setting}: {self.text!r} has a query in it; a filter sees one change at a time")
        if not expression.deterministic() or expression.containsPattern(patterns.CURRENT_LIKE()):
            raise SettingsError(
                f"{self.setting}: {self.text!r} would not say the same of a change that comes again: it may ask for"
                " neither the time nor chance"
            )


class CheckedCondition:
    """A condition over columns that are known."""

    def __init__(self, spark: SparkSession, parts: list[_Conjunct]) -> None:
        self._spark = spark
        self._conjuncts = parts
        self._judged: dict[frozenset[str], Column | None] = {}

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it asks for."""
        return frozenset().union(*(conjunct.columns for conjunct in self._conjuncts))

    def parts(self, known_columns: frozenset[str]) -> tuple[int, ...]:
        """Which of the parts that AND puts together ask for `known_columns` columns alone, by number."""
        return tuple(index for index, conjunct in enumerate(self._conjuncts) if conjunct.columns <= known_columns)

    def tried(self, parts: Sequence[int]) -> Column:
        """Whether all of these parts are true, over columns of these names; null where Spark cannot evaluate them.

        A job that failed instead would have values of rows in Spark's log, on executors too. PySpark has no function
        that tries any expression: Spark's own, of which its try_ functions are made, is reached by its class.
        """
        together = reduce(and_, [self._conjuncts[index].column for index in parts])
        settled: Any = F.coalesce(together, F.lit(False))
        session: Any = self._spark
        packages = session._jvm.org.apache.spark.sql  # noqa: SLF001 - as above
        utilities = packages.classic.ExpressionUtils
        tried = packages.catalyst.expressions.TryEval(utilities.expression(settled._jc))  # noqa: SLF001 - as above
        return ClassicColumn(utilities.column(tried))

    def holds(self, rows: Any, known_columns: frozenset[str]) -> list[bool | None]:
        """For each row of a pyarrow Table of the checked columns, whether it holds; None where that is null.

        Of the parts of an AND only those count that ask for `known_columns` alone; where none does, all hold.
        Raises ValuesError where Spark cannot evaluate it.
        """
        if known_columns not in self._judged:
            self._judged[known_columns] = _together(
                [self._conjuncts[index].column for index in self.parts(known_columns)]
            )
        judged = self._judged[known_columns]
        if judged is None:
            return [True] * len(rows)
        try:
            with _silent():
                frame = self._spark.createDataFrame(rows)
                return [row[0] for row in frame.select(judged).collect()]
        except PySparkException as error:
            state = error.getSqlState()
            if state is None or state.startswith("XX"):  # Spark's own failure, such as that it was stopped
                raise
            raise ValuesError(f"{error.getCondition()}, SQLSTATE {state}") from None


def _together(columns: Sequence[Column]) -> Column | None:
    return reduce(and_, columns) if columns else None


def _conjuncts(expression: Any) -> list[Any]:
    if expression.getClass().getSimpleName() != "And":
        return [expression]
    return [*_conjuncts(expression.left()), *_conjuncts(expression.right())]


def _condition(filtered: Any) -> Any:
    """The condition of a filtered DataFrame, as Spark's analyser understands it."""
    return _analyzed(filtered).condition()


def _columns_of(filtered: Any) -> frozenset[str]:
    """The columns that the condition of a filtered DataFrame refers to, by their own names.

    Spark names a reference as the condition does, which may be in other letters (COUNTRY): its id says which it is.
    """
    names = {attribute.exprId().id(): attribute.name() for attribute in _each(_analyzed(filtered).output())}
    return frozenset(names[attribute.exprId().id()] for attribute in _each(_condition(filtered).references()))


def _analyzed(filtered: Any) -> Any:
    return filtered._jdf.queryExecution().analyzed()  # noqa: SLF001 - nor what an expression refers to


def _each(attributes: Any) -> Iterator[Any]:
    """The attributes of one of Scala's collections."""
    iterator = attributes.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _words(error: PySparkException) -> str:
    """Spark's own words, in one line."""
    lines = (error.getMessage() or str(error)).strip().splitlines()
    return " ".join(line.strip() for line in lines)


@contextmanager
def _silent() -> Iterator[None]:
    """While inside, PySpark does not log what Spark refuses; it raises it as well."""
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
