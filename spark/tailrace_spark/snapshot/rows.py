"""Pages of a table as Arrow batches: its columns in Spark's types, with write times, TTLs and exact bytes beside them.

Values have the types that they have in tables of lakes and in `tailrace_spark.changes`.

They refer to the page, or are copied out of it a column at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import DecodeError, SettingsError
from tailrace_schemas.table import Column
from tailrace_spark.sinks.arrow.change_columns import ValueColumn
from tailrace_spark.sinks.arrow.schema import value_type
from tailrace_spark.sinks.arrow.types import delta_type
from tailrace_spark.sinks.arrow.values import SIZES, Odd, column_array, either, fixed_array, text_array
from tailrace_spark.snapshot.page import PageColumns, read_lengths, row_count
from tailrace_spark.snapshot.selection import Selected

_BINARY: Final = pa.binary()
Values = Sequence[bytes | None]
_BIGINT: Final = CqlType("bigint")
_TIMES: Final = {"writetime": CqlType("bigint"), "ttl": CqlType("int")}
_TIME_TYPES: Final = {"writetime": pa.int64(), "ttl": pa.int32()}
_RAW: Final = pa.map_(pa.string(), pa.binary())


class PageArrays:
    """The columns of one page, by their index. Raises TruncatedError, CorruptError where it is no page."""

    def __init__(self, page: PageColumns) -> None:
        self._data = page.data
        self._buffer = pa.py_buffer(page.data)
        self.rows = row_count(page.data)
        shape = self.rows, page.width
        self._lengths = np.frombuffer(read_lengths(page.data, page.width), "<i4").reshape(shape)
        sizes = np.maximum(self._lengths, 0).ravel()
        # A page has less than 2 GiB: the length of the native protocol's frames has 31 bits.
        ends = np.cumsum(sizes + 4, dtype=np.int32) + np.int32(4)
        self._starts = (ends - sizes).reshape(shape)
        self._ends = ends.reshape(shape)

    def fixed(self, column: int, size: int) -> tuple[Any, Odd]:
        """The values that have so many bytes, null for all others; which of these are no nulls, None: none is."""
        lengths, starts = self._lengths[:, column], self._starts[:, column]
        other_sizes = lengths != size
        if not other_sizes.any():
            return self._fixed(None, self._octets(starts, size), size), None
        present = ~other_sizes
        octets = np.zeros((self.rows,), f"V{size}")
        octets[present] = self._octets(starts[present], size)
        odd = other_sizes & (lengths >= 0)
        return self._fixed(_bits(present), octets, size), odd if odd.any() else None

    def binary(self, column: int) -> Any:
        """All values, null for null."""
        if not self.rows:
            return pa.array([], _BINARY)
        # Each value ends where the next begins: so what is between two of them is one, too.
        offsets = np.empty(2 * self.rows, np.int32)
        offsets[0::2] = self._starts[:, column]
        offsets[1::2] = self._ends[:, column]
        count = len(offsets) - 1
        between = pa.Array.from_buffers(_BINARY, count, [None, pa.py_buffer(offsets), self._buffer])
        nulls = self._lengths[:, column] < 0
        return between.take(pa.array(np.arange(0, count, 2, dtype=np.int32), mask=nulls if nulls.any() else None))

    def value(self, column: int, row: int) -> bytes | None:
        """One of them."""
        if self._lengths[row, column] < 0:
            return None
        return self._data[int(self._starts[row, column]) : int(self._ends[row, column])]

    def _octets(self, starts: npt.NDArray[np.int32], size: int) -> npt.NDArray[Any]:
        """The values that start there: the page as overlapping values, one at each byte."""
        if not len(starts):
            return np.empty(0, f"V{size}")
        return np.ndarray((len(self._data) - size + 1,), f"V{size}", self._data, strides=(1,))[starts]

    def _fixed(self, validity: Any, octets: npt.NDArray[Any], size: int) -> Any:
        return pa.Array.from_buffers(pa.binary(size), self.rows, [validity, pa.py_buffer(octets)])


def _bits(present: npt.NDArray[np.bool_]) -> Any:
    return pa.py_buffer(np.packbits(present, bitorder="little"))


@dataclass(frozen=True)
class RowColumns:
    """The DataFrame's columns: the selected values by their names; then, with `details`, three more.

    `writetime` is a struct of microseconds by column, `ttl` one of the seconds left. `raw` has the bytes of values that
    their columns cannot hold, by column; they are null there. `prefix` stands before these three names.
    """

    selected: tuple[Selected, ...]
    details: bool = True
    prefix: str = ""

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
            in_order = [raw.get(row) for row in range(columns.rows)] if raw else []
            arrays.append(pa.array(in_order, _RAW) if raw else pa.nulls(columns.rows, _RAW))
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
