"""Before Spark judges a task's records: the values that conditions ask for, beside each record that has a filter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import Broadcast

from tailrace_schemas.avro import decode
from tailrace_schemas.change import Change
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table_json import table_from_json
from tailrace_spark.shaping.filter_columns import FilterColumns, known_key_columns
from tailrace_spark.shaping.task_filter_plan import CASE, FilterPlan, TableFilter, Verdict, values_column
from tailrace_spark.source.decode import PIECE_RECORDS
from tailrace_spark.streams.worker_imports import forget_archives
from tailrace_spark.tasks.schemas import TaskSchemas


@dataclass(frozen=True, slots=True)
class FilterValues:
    """Adds the plan's columns to a task's records; it is pickled with the task."""

    plan: FilterPlan
    schemas: Broadcast[TaskSchemas]
    early: bool

    def added(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of `with_head`, as many and in their order, with case and values; for mapInArrow."""
        forget_archives()
        columns: dict[TableFilter, FilterColumns] = {}
        for batch in batches:
            for begin in range(0, batch.num_rows, PIECE_RECORDS):
                yield _Slice(self, batch.slice(begin, PIECE_RECORDS), columns).with_values()


class _Slice:
    """Some records, few enough to be decoded at once."""

    def __init__(
        self, values: FilterValues, records: pa.RecordBatch, columns: dict[TableFilter, FilterColumns]
    ) -> None:
        self._plan = values.plan
        self._schemas = values.schemas.value
        self._early = values.early
        self._records = records
        self._columns = columns
        self._cases = np.full(records.num_rows, Verdict.PASSES, dtype=np.int32)
        self._indexes: list[list[int]] = [[] for _ in self._plan.values]
        self._rows: list[list[Any]] = [[] for _ in self._plan.values]

    def with_values(self) -> pa.RecordBatch:
        encoded = self._records.column("schema_id").dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code, schema_id in enumerate(encoded.dictionary.to_pylist()):
            indexes: list[int] = np.flatnonzero(codes == code).tolist()
            table_filter = self._plan.tables.get(schema_id)
            if table_filter is not None:
                self._judge(table_filter, indexes)
            elif schema_id in self._plan.elsewhere:
                self._cases[indexes] = Verdict.FOR_DRIVER
        names = [*self._records.schema.names, CASE, *map(values_column, range(len(self._rows)))]
        values = [self._values(index) for index in range(len(self._rows))]
        return pa.RecordBatch.from_arrays([*self._records.columns, pa.array(self._cases), *values], names=names)

    def _judge(self, table_filter: TableFilter | str, indexes: Sequence[int]) -> None:
        groups: dict[int, tuple[list[int], list[Change]]] = {}
        for index, change in self._decoded(indexes):
            if isinstance(table_filter, str):
                self._cases[index] = Verdict.REFUSED
            elif (case := table_filter.cases[known_key_columns(change)]) != Verdict.PASSES:
                indexes_of_case, changes = groups.setdefault(case, ([], []))
                indexes_of_case.append(index)
                changes.append(change)
        if not isinstance(table_filter, str):
            for case, (indexes_of_case, changes) in groups.items():
                self._add(table_filter, case, indexes_of_case, changes)

    def _decoded(self, indexes: Sequence[int]) -> Iterator[tuple[int, Change]]:
        """The changes of these records, but those that their partition's writer sets aside or refuses anyway."""
        messages = self._records.column("value").take(pa.array(indexes, pa.int64())).to_pylist()
        for index, message in zip(indexes, messages, strict=True):
            try:
                change = decode(message, self._schemas)
            except DecodeError:
                continue
            if self._early or change.source is None or change.source.durable:
                yield index, change

    def _add(self, table_filter: TableFilter, case: int, indexes: list[int], changes: Sequence[Change]) -> None:
        """Add the values of changes. By halves, to find those with values that Spark cannot have."""
        try:
            rows = self._columns_of(table_filter).rows(changes)
        except (pa.ArrowInvalid, ValueError):
            if len(changes) == 1:
                self._cases[indexes] = Verdict.NO_VALUE
                return
            half = len(changes) // 2
            self._add(table_filter, case, indexes[:half], changes[:half])
            self._add(table_filter, case, indexes[half:], changes[half:])
            return
        self._cases[indexes] = case
        self._indexes[table_filter.number] += indexes
        arrays = [column.combine_chunks() for column in rows.columns]
        self._rows[table_filter.number].append(pa.StructArray.from_arrays(arrays, fields=list(rows.schema)))

    def _columns_of(self, table_filter: TableFilter) -> FilterColumns:
        if table_filter not in self._columns:
            table = table_from_json(json.loads(table_filter.table))
            columns = FilterColumns(table, written=self._plan.written, names=table_filter.names)
            self._columns[table_filter] = columns
        return self._columns[table_filter]

    def _values(self, number: int) -> pa.Array:
        """The values of one of the plan's Schemas, null for records that are not asked for them."""
        of, count = pa.struct(list(self._plan.values[number])), self._records.num_rows
        if not self._rows[number]:
            return pa.nulls(count, of)
        row_indexes = np.full(count, -1, dtype=np.int64)
        row_indexes[self._indexes[number]] = np.arange(len(self._indexes[number]))
        return pa.concat_arrays(self._rows[number]).take(pa.array(row_indexes, mask=row_indexes < 0))
