"""Arrow types that tables of a lake can have: a history's columns from a definition, and how they grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace_spark.sinks.arrow.date_range import FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT

DAY: Final = "day"
"""What a history is partitioned by: the day (UTC) of the write time."""


def history_schema(records: Any) -> Any:
    """The pyarrow Schema of a history of records of this one (arrow.schema): in types that Delta has, and the day."""
    return pa.schema([*delta_schema(records), pa.field(DAY, pa.date32())])


def delta_schema(schema: Any) -> Any:
    """The schema in types that Delta has."""
    return pa.schema([pa.field(field.name, delta_type(field.type)) for field in schema])


def delta_type(of: Any) -> Any:
    """A type as Delta has it: times of a day are nanoseconds, timestamps microseconds, and bytes of any length."""
    if pa.types.is_struct(of):
        return pa.struct([pa.field(field.name, delta_type(field.type)) for field in of])
    if pa.types.is_list(of):
        return pa.list_(delta_type(of.value_type))
    if pa.types.is_timestamp(of):
        return pa.timestamp("us", "UTC")
    if pa.types.is_time(of):
        return pa.int64()
    return pa.binary() if pa.types.is_fixed_size_binary(of) else of


def grown(existing: Any, added: Any) -> Any | None:
    """The schema that holds rows of both; what is only in `added` stands last. None where a type is another."""
    fields = _joined(list(existing), list(added))
    return None if fields is None else pa.schema(fields)


def _joined(existing: Sequence[Any], added: Sequence[Any]) -> list[Any] | None:
    fields = {field.name: field for field in existing}
    for field in added:
        former = fields.get(field.name)
        of = field.type if former is None else _grown_type(former.type, field.type)
        if of is None:
            return None
        fields[field.name] = pa.field(field.name, of)
    return list(fields.values())


def _grown_type(existing: Any, added: Any) -> Any | None:
    if pa.types.is_struct(existing) and pa.types.is_struct(added):
        fields = _joined(list(existing), list(added))
        return None if fields is None else pa.struct(fields)
    if pa.types.is_list(existing) and pa.types.is_list(added):
        of = _grown_type(existing.value_type, added.value_type)
        return None if of is None else pa.list_(of)
    return existing if existing == added else None


def sayable(array: Any) -> bool:
    """Whether Delta can have all timestamps, in milliseconds, and dates of an array."""
    of = array.type
    if pa.types.is_struct(of):
        return all(sayable(array.field(index)) for index in range(of.num_fields))
    if pa.types.is_list(of):
        return sayable(array.values)
    if pa.types.is_timestamp(of):
        return _between(array.cast(pa.int64()), FIRST_MOMENT, LAST_MOMENT)
    return not pa.types.is_date(of) or _between(array.cast(pa.int32()), FIRST_DAY, LAST_DAY)


def _between(numbers: Any, first: int, last: int) -> bool:
    bounds = pc.min_max(numbers)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    return least is None or (first <= least and greatest <= last)


def conform(batch: Any, schema: Any) -> Any:
    """A RecordBatch in a schema that has its columns, and may have more; these are null.

    Timestamps that become microseconds must be `sayable`.
    """
    names = set(batch.schema.names)
    arrays = [
        conformed(batch.column(field.name), field.type) if field.name in names else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def conform_table(rows: Any, schema: Any) -> Any:
    """As `conform` a pyarrow Table, which has no slices."""
    return pa.Table.from_batches([conform(batch, schema) for batch in rows.combine_chunks().to_batches()], schema)


def conformed(array: Any, of: Any) -> Any:
    """`array` in another type; it is no slice."""
    if array.type == of:
        return array
    if pa.types.is_struct(of):
        index_by_name = {field.name: index for index, field in enumerate(array.type)}
        fields = [
            conformed(array.field(index_by_name[field.name]), field.type)
            if field.name in index_by_name
            else pa.nulls(len(array), field.type)
            for field in of
        ]
        return pa.StructArray.from_arrays(fields, fields=list(of), mask=array.is_null())
    if pa.types.is_list(of):
        values = conformed(array.values, of.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=of, mask=array.is_null())
    # A time of more than a day is none for Arrow, which refuses to cast it; Cassandra takes it.
    return array.view(of) if pa.types.is_time(of) else array.cast(of)
