"""Pages of a table as Arrow batches: its columns in Spark's types, with write times, TTLs and exact bytes beside them.

Values have the types that they have in tables of lakes and in `tailrace_spark.changes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import DecodeError, SettingsError
from tailrace_schemas.table import Column
from tailrace_spark.sinks.arrow.change_columns import ValueColumn
from tailrace_spark.sinks.arrow.schema import value_type
from tailrace_spark.sinks.arrow.types import delta_type
from tailrace_spark.sinks.arrow.values import SIZES, Odd, column_array, either, fixed_array, text_array
from tailrace_spark.snapshot.page import PageColumns
from tailrace_spark.snapshot.page_arrays import PageArrays
from tailrace_spark.snapshot.selection import Kind, Selected

Values = Sequence[bytes | None]
_BIGINT: Final = CqlType("bigint")
_TIMES: Final = {"writetime": CqlType("bigint"), "ttl": CqlType("int")}
_TIME_TYPES: Final = {"writetime": pa.int64(), "ttl": pa.int32()}
_RAW: Final = pa.map_(pa.string(), pa.binary())


@dataclass(frozen=True)
class RowShape:
    """The DataFrame's columns: the selected values by their names; then, with `details`, three more.

    `writetime` is a struct of microseconds by column, `ttl` one of the seconds left. `raw` has the bytes of values that
    their columns cannot hold, by column; they are null there. `prefix` stands before these three names.
    """

    selected: tuple[Selected, ...]
    details: bool = True
    prefix: str = ""
    _names: dict[Kind, str] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        values = {item.column.name for item in self.selected if item.kind == "value"}
        names = {f"{self.prefix}{name}" for name in ("writetime", "ttl", "raw")} if self.details else set()
        if clashes := sorted(values & names):
            raise SettingsError(
                f'the table has a column {clashes[0]!r} itself: give detail_prefix, such as "cql_", or details = false'
            )

    @cached_property
    def schema(self) -> Any:
        """The pyarrow Schema. Raises UnsupportedError for types that are too large to be written out."""
        fields = [pa.field(item.column.name, _type(item.column)) for item in self._of("value")]
        if self.details:
            fields += [
                pa.field(f"{self.prefix}{kind}", pa.struct(self._time_fields(kind)))
                for kind in _TIMES
                if self._of(kind)
            ]
            fields.append(pa.field(f"{self.prefix}raw", _RAW))
        return pa.schema(fields)

    def batch(self, page: PageColumns) -> Any:
        """The RecordBatch of a page, whose columns are as they were selected. Raises TruncatedError, CorruptError."""
        columns = PageArrays(page)
        raw: dict[int, list[tuple[str, bytes]]] = {}
        arrays = [
            _value_array(item.column, columns, index, raw)
            for index, item in enumerate(self.selected)
            if item.kind == "value"
        ]
        if self.details:
            arrays += [self._times(kind, columns) for kind in _TIMES if self._of(kind)]
            in_order = [raw.get(row) for row in range(page.rows)] if raw else []
            arrays.append(pa.array(in_order, _RAW) if raw else pa.nulls(page.rows, _RAW))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _of(self, kind: str) -> list[Selected]:
        return [item for item in self.selected if item.kind == kind]

    def _time_fields(self, kind: str) -> list[Any]:
        of = _TIME_TYPES[kind]
        return [pa.field(item.column.name, pa.list_(of) if item.elements else of) for item in self._of(kind)]

    def _times(self, kind: str, columns: PageArrays) -> Any:
        arrays = [
            _time_array(item, kind, columns, index) for index, item in enumerate(self.selected) if item.kind == kind
        ]
        return pa.StructArray.from_arrays(arrays, fields=self._time_fields(kind))


def _shown(column: Column) -> Column:
    """A column as SELECT gives it: a counter is a number, a collection a whole value."""
    return replace(column, type=_BIGINT) if column.type.kind == "counter" else column


def _type(column: Column) -> Any:
    return delta_type(value_type(_shown(column).type))


def _time_array(item: Selected, kind: str, columns: PageArrays, index: int) -> Any:
    of = _TIMES[kind]
    if not item.elements:
        return fixed_array(of, columns.fixed(index, SIZES[of.kind])[0])[0]
    decode = codec(CqlType("list", (of,), frozen=True)).decode
    elements = [None if value is None else decode(value) for value in columns.binary(index).to_pylist()]
    return pa.array(elements, pa.list_(_TIME_TYPES[kind]))


def _value_array(column: Column, columns: PageArrays, index: int, raw: dict[int, list[tuple[str, bytes]]]) -> Any:
    """The array of a column; `raw` gets the values that it cannot hold."""
    column = _shown(column)
    array, odd = _arrow(column, columns, index)
    if odd is None:
        return array
    rows = [int(row) for row in np.flatnonzero(odd)]
    for row in rows:
        data = columns.value(index, row)
        if data is not None:
            raw.setdefault(row, []).append((column.name, data))
    return pa.compute.if_else(pa.array(odd), pa.nulls(columns.rows, array.type), array)


def _arrow(column: Column, columns: PageArrays, index: int) -> tuple[Any, Odd]:
    """As `sinks.arrow.values.array_of`."""
    kind = column.type.kind
    if kind == "blob":
        return columns.binary(index), None
    if kind in ("text", "ascii"):
        return text_array(kind, columns.binary(index))
    if kind not in SIZES:
        return _decoded(column, columns.binary(index).to_pylist())
    data, odd = columns.fixed(index, SIZES[kind])
    array, odd_values = fixed_array(column.type, data)
    return array, either(odd, odd_values)


def _decoded(column: Column, values: Values) -> tuple[Any, Odd]:
    """As `array_of`, of types whose values are decoded one by one."""
    of = value_type(column.type)
    decoded, odd = _value_column(column, values)
    array, beyond = column_array(decoded, of, len(values))
    if beyond is not None:
        # One of them is beyond what Spark has: trying each alone shows which rows.
        singles = [column_array(_value_column(column, [value])[0], of, 1) for value in values]
        array = pa.concat_arrays([single for single, _ in singles])
        odd |= np.array([bool(beyond is not None and beyond.any()) for _, beyond in singles])
    return array, odd if odd.any() else None


def _value_column(column: Column, values: Values) -> tuple[ValueColumn, Any]:
    decoded = ValueColumn(column, len(values))
    odd = np.zeros(len(values), np.bool_)
    for row, data in enumerate(values):
        if data is not None:
            try:
                odd[row] = not decoded.put(row, data)
            except DecodeError:
                odd[row] = True
    return decoded, odd
