"""Columns of changes (`change_columns`) as record batches of a history, in the types that Delta has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace_spark.sinks.arrow.change_columns import ChangeColumns, ValueColumn
from tailrace_spark.sinks.arrow.date_range import FIRST_DAY, LAST_DAY
from tailrace_spark.sinks.arrow.relabel import relabelled
from tailrace_spark.sinks.arrow.types import delta_type
from tailrace_spark.sinks.arrow.values import Odd, column_array, either

_DAY: Final = 86_400_000_000


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
    arrays = [relabelled(_array(values[field.name], field.type, columns.rows), field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if odd is None:
        return batch, []
    return batch.filter(pa.array(~odd)), np.flatnonzero(odd).tolist()


def _array(values: Any, of: Any, rows: int) -> Any:
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
        [_array(values[field.name], field.type, columns.rows) for field in of], fields=list(of)
    )


def _days(written: Any) -> Any:
    """The days (UTC) of write times in microseconds; of those beyond the years 1 to 9999, the first or last."""
    days = np.clip(written.to_numpy() // _DAY, FIRST_DAY, LAST_DAY).astype(np.int32)
    return pa.array(days, pa.date32())
