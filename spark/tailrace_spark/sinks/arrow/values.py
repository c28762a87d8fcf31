"""Columns of Cassandra's bytes as Arrow arrays in the types that Delta has, a whole column at a time, by numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import DecodeError
from tailrace_spark.sinks.arrow.change_columns import ChangeColumns, ValueColumn
from tailrace_spark.sinks.arrow.types import (
    FIRST_DAY,
    FIRST_MOMENT,
    LAST_DAY,
    LAST_MOMENT,
    conformed,
    delta_type,
    relabelled,
    sayable,
)

Odd = npt.NDArray[np.bool_] | None
"""Which rows hold no such value; None: all do."""

_NUMBERS: Final = {
    "tinyint": (">i1", np.int8, pa.int8()),
    "smallint": (">i2", np.int16, pa.int16()),
    "int": (">i4", np.int32, pa.int32()),
    "bigint": (">i8", np.int64, pa.int64()),
    "time": (">i8", np.int64, pa.int64()),
    "float": (">f4", np.float32, pa.float32()),
    "double": (">f8", np.float64, pa.float64()),
}
SIZES: Final = {
    **{kind: np.dtype(wire).itemsize for kind, (wire, _, _) in _NUMBERS.items()},
    "boolean": 1, "timestamp": 8, "date": 4, "uuid": 16, "timeuuid": 16,
}  # fmt: skip
"""How many bytes the values of these types have."""
_TEXTS: Final = ("text", "ascii")
_UUIDS: Final = ("uuid", "timeuuid")
_DAY_ZERO: Final = 1 << 31
_DIGITS: Final = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
_DASHES: Final = (8, 13, 18, 23)
_DAY: Final = 86_400_000_000


def array_of(of: CqlType, values: Sequence[bytes | None]) -> tuple[Any, Odd]:
    """The array of a column of values (change_columns.AS_BYTES), None for null; and where it does not say them.

    That is where bytes are no value of the type, or the value does not give back these bytes, or Delta has it not.
    """
    kind = of.kind
    if kind == "blob":
        return pa.array(values, pa.binary()), None
    if kind in _TEXTS:
        return text_array(kind, pa.array(values, pa.binary()))
    size = SIZES[kind]
    odd: Odd = None
    try:
        data = pa.array(values, pa.binary(size))
    except pa.ArrowInvalid:
        odd = np.fromiter((value is not None and len(value) != size for value in values), np.bool_, len(values))
        data = pa.array([None if bad else value for value, bad in zip(values, odd, strict=True)], pa.binary(size))
    array, odd_values = fixed_array(of, data)
    return array, either(odd, odd_values)


def column_array(column: ValueColumn, of: Any, rows: int) -> tuple[Any, Odd]:
    """As `array_of`, of the first rows of any column; `of` is the Arrow type that its values have before Delta's."""
    values: list[Any] = column.values[:rows]
    if column.as_bytes:
        return array_of(column.type, values)
    array = pa.array(values, of)
    if not sayable(array):
        return pa.nulls(rows, delta_type(of)), np.asarray(array.is_valid())
    return conformed(array, delta_type(of)), None


def either(first: Odd, second: Odd) -> Odd:
    """Rows that are odd in either."""
    return second if first is None else first if second is None else first | second


def fixed_array(of: CqlType, data: Any) -> tuple[Any, Odd]:
    """As `array_of`, of a type that has SIZES; `data` is an array of so many bytes, and no slice."""
    kind, rows = of.kind, len(data)
    validity, octets = data.buffers()
    if kind in _UUIDS:
        return _uuids(validity, octets, rows), None
    if kind == "boolean":
        flags = np.frombuffer(octets, np.uint8)[:rows]
        nulls = None if validity is None else np.asarray(data.is_null())
        return pa.array(flags != 0, mask=nulls), _some(flags > 1)
    if kind == "timestamp":
        moments = np.frombuffer(octets, ">i8")[:rows].astype(np.int64)
        odd = _some((moments < FIRST_MOMENT) | (moments > LAST_MOMENT))
        return _array(pa.timestamp("us", "UTC"), validity, moments * 1_000), odd
    if kind == "date":
        days = np.frombuffer(octets, ">u4")[:rows].astype(np.int64) - _DAY_ZERO
        odd = _some((days < FIRST_DAY) | (days > LAST_DAY))
        if odd is not None and validity is not None:
            odd = _some(odd & np.asarray(data.is_valid()))
        return _array(pa.date32(), validity, days.astype(np.int32)), odd
    wire, native, arrow = _NUMBERS[kind]
    numbers = np.frombuffer(octets, wire)[:rows].astype(native)
    odd = None
    if kind in ("float", "double"):
        odd = _unlike(of, data, np.flatnonzero(np.isnan(numbers)))
    return _array(arrow, validity, numbers), odd


def _array(of: Any, validity: Any, numbers: npt.NDArray[Any]) -> Any:
    return pa.Array.from_buffers(of, len(numbers), [validity, pa.py_buffer(numbers)])


def _some(odd: npt.NDArray[np.bool_]) -> Odd:
    return odd if odd.any() else None


def _unlike(of: CqlType, data: Any, rows: npt.NDArray[np.intp]) -> Odd:
    """Which of these rows' values would not give back their bytes."""
    if not len(rows):
        return None
    coder = codec(of)
    odd = np.zeros(len(data), np.bool_)
    for row in rows:
        octets = data[int(row)].as_py()
        odd[row] = coder.encode(coder.decode(octets)) != octets
    return _some(odd)


def text_array(kind: str, data: Any) -> tuple[Any, Odd]:
    """As `array_of`, of "text" or "ascii"; `data` is an array of bytes, and no slice."""
    try:
        texts = data.cast(pa.string())
    except pa.ArrowInvalid:
        texts = None
    if texts is not None and (kind == "text" or _is_ascii(data)):
        return texts, None
    coder = codec(CqlType(kind))
    values = data.to_pylist()
    odd = np.zeros(len(values), np.bool_)
    for row, value in enumerate(values):
        try:
            if value is not None:
                coder.decode(value)
        except DecodeError:
            odd[row] = True
    good = [None if bad else value for value, bad in zip(values, odd, strict=True)]
    return pa.array(good, pa.binary()).cast(pa.string()), _some(odd)


def _is_ascii(data: Any) -> bool:
    octets = data.buffers()[2]
    return octets is None or not len(octets) or int(np.frombuffer(octets, np.uint8).max()) < 0x80


def _uuids(validity: Any, octets: Any, rows: int) -> Any:
    digits = _DIGITS[np.frombuffer(octets, np.uint8)[: rows * 16]].reshape(rows, 32)
    texts = np.full((rows, 36), ord("-"), np.uint8)
    digit = 0
    for start, end in zip((0, 9, 14, 19, 24), (*_DASHES, 36), strict=True):
        texts[:, start:end] = digits[:, digit : digit + end - start]
        digit += end - start
    offsets = np.arange(0, 36 * (rows + 1), 36, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), rows, [validity, pa.py_buffer(offsets), pa.py_buffer(texts)])


def change_batch(columns: ChangeColumns, numbers: Any, schema: Any) -> tuple[Any, list[int]]:
    """The RecordBatch of all that is in the columns, and the rows that are left out of it, to be made of records.

    `numbers` is the schema of a definition's records (arrow.schema), `schema` the history's (arrow.types), in whose
    structs names may be others (lake.names).
    """
    keys, odd = _struct(columns.keys, numbers.field("key").type, columns.rows)
    written = pa.array(columns.written, pa.int64())
    values: dict[str, Any] = {
        "topic": columns.topics, "partition": columns.partitions, "offset": columns.offsets, "schema": columns.schemas,
        "generation": columns.generations, "stream_id": columns.streams, "op": columns.ops, "token": columns.tokens,
        "written": written, "ttl": columns.ttls, "expires": columns.expires, "digest": columns.digests, "key": keys,
        "deleted": columns.deleted, "raw": None, "cells": columns.cells, "range": None,
        "source": _sources(columns, schema.field("source").type), "day": _days(written),
    }  # fmt: skip
    if columns.columns:
        values["columns"], odd_columns = _struct(columns.columns, numbers.field("columns").type, columns.rows)
        odd = either(odd, odd_columns)
    arrays = [relabelled(_of_type(values[field.name], field.type, columns.rows), field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if odd is None:
        return batch, []
    return batch.filter(pa.array(~odd)), np.flatnonzero(odd).tolist()


def _of_type(values: Any, of: Any, rows: int) -> Any:
    if values is None:
        return pa.nulls(rows, of)
    if not isinstance(values, list):
        return values
    first = values[0]
    # Most of these columns say one and the same thing of many changes; to count stops being cheap where they do not.
    if values[-1] is first and values.count(first) == rows:
        return pa.repeat(pa.scalar(first, of), rows)
    return pa.array(values, of)


def _struct(columns: Sequence[ValueColumn], of: Any, rows: int) -> tuple[Any, Odd]:
    """One struct a row; and the rows in which something is no value of its column."""
    arrays, odd = [], None
    for column, field in zip(columns, of, strict=True):
        array, odd_values = column_array(column, field.type, rows)
        arrays.append(array)
        odd = either(odd, odd_values)
    return pa.StructArray.from_arrays(arrays, fields=[pa.field(f.name, delta_type(f.type)) for f in of]), odd


def _sources(columns: ChangeColumns, of: Any) -> Any:
    values: dict[str, list[Any]] = {
        "host": columns.hosts, "datacenter": columns.datacenters, "epoch": columns.epochs, "segment": columns.segments,
        "offset": columns.positions, "index": columns.indexes, "count": columns.counts, "origin": columns.origins,
        "durable": columns.durable, "seen": columns.seen, "flags": columns.flags,
    }  # fmt: skip
    return pa.StructArray.from_arrays(
        [_of_type(values[field.name], field.type, columns.rows) for field in of], fields=list(of)
    )


def _days(written: Any) -> Any:
    """The days (UTC) of write times in microseconds; of those beyond the years 1 to 9999, the first or last."""
    days = np.clip(written.to_numpy() // _DAY, FIRST_DAY, LAST_DAY).astype(np.int32)
    return pa.array(days, pa.date32())
