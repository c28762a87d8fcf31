"""Rows of a history, whoever read them out of a lake, as the records that were delivered (docs/change-json.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tailrace_schemas.avro.names import avro_name, cql_name
from tailrace_schemas.cql.json_value import plain
from tailrace_spark.sinks.arrow.types import DAY, conform, relabelled_batch


def change_records(table: str, rows: Any) -> Iterator[dict[str, Any]]:
    """The JSON objects of a pyarrow Table of a history's rows, in its order; `table` is KEYSPACE.NAME.

    A history has no order: sort by topic, partition and offset. `tailrace_schemas.change_json.ChangeJson` makes a
    change of each, by a definition of the table that has its columns.
    """
    for batch in rows.to_batches():
        batch = conform(_whole(batch), _schema(batch.schema, _same))
        batch = relabelled_batch(batch, source_names(batch.schema))
        milliseconds = conform(batch, _schema(batch.schema, _milliseconds))
        for row in conform(milliseconds, _schema(milliseconds.schema, _numbers)).to_pylist():
            del row[DAY]
            columns = {name: value for name, value in (row.get("columns") or {}).items() if value is not None}
            yield {"table": table, **{name: plain(value) for name, value in {**row, "columns": columns}.items()}}


def source_names(schema: Any) -> Any:
    """A pyarrow Schema of a history with the names that records have, as Avro writes those of the source."""
    return pa.schema([pa.field(avro_name(cql_name(field.name)), _source_type(field.type)) for field in schema])


def _whole(batch: Any) -> Any:
    """The batch without slices."""
    return pa.RecordBatch.from_arrays([pa.concat_arrays([array]) for array in batch.columns], schema=batch.schema)


def _schema(schema: Any, convert: Any) -> Any:
    return pa.schema([pa.field(field.name, _converted(field.type, convert)) for field in schema])


def _converted(of: Any, convert: Any) -> Any:
    if pa.types.is_struct(of):
        return pa.struct([pa.field(field.name, _converted(field.type, convert)) for field in of])
    if pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_list_view(of):
        return pa.list_(_converted(of.value_type, convert))
    return convert(of)


def _source_type(of: Any) -> Any:
    if pa.types.is_struct(of):
        return pa.struct(list(source_names(of)))
    return pa.list_(_source_type(of.value_type)) if pa.types.is_list(of) else of


def _same(of: Any) -> Any:
    return of


def _milliseconds(of: Any) -> Any:
    return pa.timestamp("ms", "UTC") if pa.types.is_timestamp(of) else of


def _numbers(of: Any) -> Any:
    if pa.types.is_timestamp(of):
        return pa.int64()
    return pa.int32() if pa.types.is_date(of) else of
