"""Arrow arrays and batches under other names of the same shape."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


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
