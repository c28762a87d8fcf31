"""Arrow types that tables of a lake can have, how they grow, and what stands for dates that they cannot have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace_schemas.avro.convert import to_bytes
from tailrace_schemas.avro.names import avro_name, bound_name
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.table import Column, Table

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""Days since 1970 of 1 January 1 and 31 December 9999. Others could be written, but not be read by most:

files say the smallest and largest of their values as text, at which readers fail that know four digits of a year.
"""
FIRST_MOMENT, LAST_MOMENT = FIRST_DAY * 86_400_000, (LAST_DAY + 1) * 86_400_000 - 1
"""The first and last of them, in milliseconds."""

_Raw = dict[tuple[str, bytes | None, str], dict[str, Any]]
DAY: Final = "day"
"""What a history is partitioned by: the day (UTC) of the write time."""
Near = Callable[[CqlType, Any], Any]
"""What stands for a value of a type that readers cannot have, as `nearest` gives it; others are as they are."""


def within(table: Table, record: Mapping[str, Any], near: Near) -> dict[str, Any]:
    """A record (docs/contracts.md 3) whose timestamps and dates are those that readers can have, or what is `near`.

    Of a value with one beyond them, `raw` has the bytes, as of others that the record cannot say; what `raw` has
    already stays.
    """
    raw: _Raw = {(item["column"], item["path"], item["where"]): item for item in record.get("raw") or ()}
    changed = dict(record)
    if record["key"] is not None:
        changed["key"] = _named(table.key, record["key"], raw, "key", near)
    ends = record.get("range")
    if ends is not None:
        changed["range"] = {
            bound: _named(table.clustering, ends[bound], raw, bound, near) for bound in ("start", "end")
        }
    columns = {avro_name(column.name): column for column in table.columns}
    changed["columns"] = {
        name: _edit(columns[name], value, raw, near)
        if columns[name].type.multicell
        else _value(columns[name], columns[name].type, None, value, raw, "value", near)
        for name, value in record["columns"].items()
    }
    changed["raw"] = list(raw.values()) or None
    return changed


def _named(columns: Sequence[Column], values: Mapping[str, Any], raw: _Raw, where: str, near: Near) -> dict[str, Any]:
    named = dict(values)
    for column in columns:
        name = avro_name(column.name) if where == "key" else bound_name(column.name)
        if named.get(name) is not None:
            named[name] = _value(column, column.type, None, named[name], raw, where, near)
    return named


def _edit(column: Column, edit: Mapping[str, Any] | None, raw: _Raw, near: Near) -> dict[str, Any] | None:
    if edit is None:
        return None
    args = column.type.args
    if column.type.kind == "udt":
        fields = dict(edit["set"])
        for index, (name, of) in enumerate(zip(column.type.fields, args, strict=True)):
            field = avro_name(name)
            if fields.get(field) is not None:
                fields[field] = _value(column, of, index.to_bytes(2, "big"), fields[field], raw, "value", near)
        return {**edit, "set": fields}
    return {
        **edit,
        "set": [_element(column, item, raw, near) for item in edit["set"]],
        "removed": [_element(column, item, raw, near) for item in edit["removed"]],
    }


def _element(column: Column, item: Mapping[str, Any], raw: _Raw, near: Near) -> dict[str, Any]:
    """An element, which its path names: a key is there for people."""
    element = dict(item)
    if "key" in element:
        element["key"] = near(column.type.args[0], element["key"])
    if "value" in element:
        element["value"] = _value(column, column.type.args[-1], element["path"], element["value"], raw, "value", near)
    return element


def _value(column: Column, of: CqlType, path: bytes | None, value: Any, raw: _Raw, where: str, near: Near) -> Any:
    near_value = near(of, value)
    if near_value is not value and near_value != value:
        raw_value = {"column": column.name, "path": path, "where": where, "bytes": to_bytes(of, value)}
        raw.setdefault((column.name, path, where), raw_value)
        return near_value
    return value


def nearest(of: CqlType, value: Any) -> Any:
    """A value of a type, in which what Delta tables cannot have is the nearest that they can; as Avro has it."""
    if value is None:
        return None
    match of.kind:
        case "timestamp":
            return max(FIRST_MOMENT, min(LAST_MOMENT, value))
        case "date":
            return max(FIRST_DAY, min(LAST_DAY, value))
        case "list" | "set" | "vector":
            return [nearest(of.args[0], item) for item in value]
        case "map":
            names = zip(("key", "value"), of.args, strict=True)
            pairs = [(name, arg) for name, arg in names]
            return [{name: nearest(arg, item[name]) for name, arg in pairs} for item in value]
        case "tuple":
            return {f"f{index}": nearest(arg, value.get(f"f{index}")) for index, arg in enumerate(of.args)}
        case "udt":
            fields = zip(map(avro_name, of.fields), of.args, strict=True)
            return {name: nearest(arg, value.get(name)) for name, arg in fields}
    return value


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


def relabelled(array: Any, of: Any) -> Any:
    """An array, which is no slice, with the names of a type of the same shape."""
    if pa.types.is_struct(of) and array.type != of:
        fields = [relabelled(array.field(index), field.type) for index, field in enumerate(of)]
        labels = [
            pa.field(field.name, relabelled_field.type) for field, relabelled_field in zip(of, fields, strict=True)
        ]
        return pa.StructArray.from_arrays(fields, fields=labels, mask=array.is_null())
    if pa.types.is_list(of) and array.type != of:
        values = relabelled(array.values, of.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=pa.list_(values.type), mask=array.is_null())
    return array


def relabelled_batch(batch: Any, schema: Any) -> Any:
    """A RecordBatch with the names of a Schema of the same shape."""
    arrays = [relabelled(array, field.type) for array, field in zip(batch.columns, schema, strict=True)]
    labels = [pa.field(field.name, array.type) for field, array in zip(schema, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(labels))
