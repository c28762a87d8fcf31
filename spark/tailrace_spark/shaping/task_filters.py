"""Filters in a job of Spark: tasks add what conditions ask for, Spark's prefix expressions give the verdicts."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table_json import table_to_json
from tailrace_spark.shaping.change_filters import CheckedFilter, Filters
from tailrace_spark.shaping.task_filter_plan import CASE, VERDICT, FilterPlan, TableFilter, Verdict, values_column


@dataclass(frozen=True, slots=True)
class TaskFilters:
    """The filters of a stream's tables. `plan` is for tasks, `cases` are Spark's.

    Each case is the number of the values that it asks for, and a column that is null where it cannot be evaluated.
    `types` are Spark's, of the plan's values.
    """

    plan: FilterPlan
    types: tuple[DataType, ...]
    cases: tuple[tuple[int, Column], ...]

    def schema(self, heads: DataFrame) -> StructType:
        """The columns of `heads`, a DataFrame of with_head, with those that tasks add for `judged`."""
        fields = [StructField(field.name, field.dataType) for field in heads.schema]
        values = [StructField(values_column(index), of) for index, of in enumerate(self.types)]
        return StructType([*fields, StructField(CASE, IntegerType()), *values])

    def judged(self, frame: DataFrame) -> DataFrame:
        """The columns of with_head and `verdict`, of a DataFrame of `schema`. What is left out has lost its value."""
        prefix = _unused_prefix(name for values in self.plan.values for name in values.names)
        names = frame.columns
        verdicts = frame.withColumn(VERDICT, F.col(CASE))
        verdicts = verdicts.toDF(*[prefix + name for name in verdicts.columns])
        for index in range(len(self.types)):
            verdicts = self._with_verdicts(verdicts, prefix, index)
        columns = [F.col(prefix + name).alias(name) for name in names[: names.index(CASE)] if name != "value"]
        value = F.when(F.col(prefix + VERDICT) != Verdict.LEFT_OUT.value, F.col(prefix + "value"))
        return verdicts.select(*columns, value.alias("value"), F.col(prefix + VERDICT).alias(VERDICT))

    def _with_verdicts(self, frame: DataFrame, prefix: str, index: int) -> DataFrame:
        """With the verdicts of the cases that ask for these values, which stand under their own names meanwhile.

        A case is evaluated only of the records that it is for: CASE stops at the first condition that is true.
        """
        columns = [F.col(name) for name in frame.columns if name != prefix + VERDICT]
        struct = F.col(prefix + values_column(index))
        values = [struct.getField(name).alias(name) for name in self.plan.values[index].names]
        verdict = F.col(prefix + VERDICT)
        judged: Any = F
        for case, (asks_for, passes) in enumerate(self.cases, 1):
            if asks_for == index:
                judged = judged.when(F.col(prefix + CASE) == case, _verdict(passes))
        with_values = frame.select(*columns, verdict, *values)
        return with_values.select(*columns, judged.otherwise(verdict).alias(prefix + VERDICT))


def _verdict(passes: Column) -> Column:
    """PASSES of true and LEFT_OUT of false, which are 0 and -1, in a form that has the condition once."""
    return F.coalesce(passes.cast("int") + Verdict.LEFT_OUT.value, F.lit(Verdict.FOR_DRIVER.value))


def _unused_prefix(names: Any) -> str:
    """A prefix that no name has, whatever its letters: for columns of ours beside a table's."""
    prefix, lower_names = "_", [name.lower() for name in names]
    while any(name.startswith(prefix) for name in lower_names):
        prefix += "_"
    return prefix


def task_filters(filters: Filters, schemas: Mapping[bytes, SchemaEntry], topics: Collection[str]) -> TaskFilters:
    """The filters of the tables in these topics; `schemas` are all that are published."""
    entries = [entry for entry in schemas.values() if entry.part == "value" and filters.concerns(entry.table)]
    read = [entry for entry in entries if entry.topic in topics]
    planned = _Planned(filters)
    for entry in sorted(read, key=lambda entry: entry.announced):
        filters.newest(entry.table, entry.announced)
    tables = {entry.schema_id: planned.table(entry) for entry in read}
    elsewhere = frozenset(entry.schema_id for entry in entries if entry.topic not in topics)
    plan = FilterPlan(tables, elsewhere, tuple(planned.values), filters.written)
    return TaskFilters(plan, tuple(planned.types), tuple(planned.cases.values()))


class _Planned:
    """What conditions ask for, and the cases of conditions, each once."""

    def __init__(self, filters: Filters) -> None:
        self._filters = filters
        self._tables: dict[int, TableFilter] = {}
        self.values: list[Any] = []
        self.types: list[DataType] = []
        self.cases: dict[tuple[int, str, tuple[int, ...]], tuple[int, Column]] = {}

    def table(self, entry: SchemaEntry) -> TableFilter | str:
        try:
            checked = self._filters.checked(self._filters.newest(entry.table, entry.announced))
        except SettingsError as error:
            return str(error)
        if id(checked) not in self._tables:
            self._tables[id(checked)] = self._new_table(checked)
        return self._tables[id(checked)]

    def _new_table(self, checked: CheckedFilter) -> TableFilter:
        columns = checked.columns
        if columns.schema not in self.values:
            self.values.append(columns.schema)
            self.types.append(self._filters.spark.createDataFrame(columns.schema.empty_table()).schema)
        index = self.values.index(columns.schema)
        cases = tuple(self._case(checked, index, count) for count in range(len(columns.table.key) + 1))
        table = json.dumps(table_to_json(columns.table))
        return TableFilter(checked.name, table, tuple(columns.schema.names), index, cases)

    def _case(self, checked: CheckedFilter, index: int, known_columns: int) -> int:
        parts = checked.condition.parts(checked.columns.named(known_columns))
        if not parts:
            return Verdict.PASSES
        key = index, checked.name, parts
        if key not in self.cases:
            self.cases[key] = index, checked.condition.tried(parts)
        return list(self.cases).index(key) + 1
