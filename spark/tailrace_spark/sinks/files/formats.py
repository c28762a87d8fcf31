"""Files of changes in two formats: records of one definition into a file, and out of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace_schemas.change_json import ChangeJson, plain
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_to_json
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.sinks.arrow.change_batch import change_batch
from tailrace_spark.sinks.arrow.change_columns import ChangeColumns
from tailrace_spark.sinks.arrow.schema import PLACE, arrow_schema
from tailrace_spark.sinks.arrow.types import conformed, delta_schema
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, stream_value

DEFINITION: Final = b"tailrace.table"
"""The key of Parquet's metadata under which a file says the definition of its table, as JSON."""


_BLOCK: Final = 1 << 20
_GROUP_BYTES: Final = 32 << 20  # in memory, of a row group: of files that were put together, or of columns


class FormatWriter(Protocol):
    """Writes one file, in the order of `write`."""

    def write(self, records: Sequence[OutgoingRecord]) -> None: ...

    def size(self) -> int:
        """Bytes so far; what is not compressed yet is not counted."""

    def close(self) -> None:
        """End the file, and close its stream."""


class JsonLines:
    """JSON lines, without spaces."""

    def __init__(self, stream: Any, table: Table, *, compress: bool) -> None:  # noqa: ARG002 - a line says its table
        self._stream = stream
        self._out = pa.CompressedOutputStream(stream, "gzip") if compress else stream

    def write(self, records: Sequence[OutgoingRecord]) -> None:
        self._out.write(b"".join([record.json + b"\n" for record in records]))

    def size(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        self._out.close()
        if not self._stream.closed:
            self._stream.close()


class Parquet:
    """Parquet: each `write` is a row group.

    Columns are made of Cassandra's bytes, as those of a lake's history. Changes that only their record can say (edits
    of elements, ranges, bytes that are no value) are made of that.
    """

    def __init__(self, stream: Any, table: Table, *, compress: bool) -> None:
        self._stream = stream
        self._table = table
        definition = json.dumps(table_to_json(table), ensure_ascii=False).encode()
        self._schema = arrow_schema(table).with_metadata({DEFINITION: definition})
        self._delta_schema = delta_schema(self._schema)
        self._writer = pq.ParquetWriter(stream, self._schema, compression="zstd" if compress else "none")

    def write(self, records: Sequence[OutgoingRecord]) -> None:
        self._writer.write_table(parquet_rows(records, self._table, self._schema, self._delta_schema))

    def size(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        self._writer.close()
        self._stream.close()


def parquet_rows(records: Sequence[OutgoingRecord], table: Table, schema: Any, delta: Any) -> Any:
    """Changes of a definition as a pyarrow Table of `schema`, in their order; `delta` is it in types that Delta has."""
    columns = ChangeColumns(table, len(records), _GROUP_BYTES)
    by_columns: list[int] = []
    by_records: list[int] = []
    for index, record in enumerate(records):
        delivered = Delivered(record.record_id, record.change, record.assignment)
        (by_columns if not columns.full and columns.add(delivered) else by_records).append(index)
    if not by_columns:
        return rows_of_records(records, schema)
    batch, odd = change_batch(columns, schema, delta)
    arrays = [conformed(array, field.type) for array, field in zip(batch.columns, schema, strict=True)]
    rows = pa.Table.from_arrays(arrays, schema=schema)
    if not by_records and not odd:
        return rows
    left_out = set(odd)
    order = [index for row, index in enumerate(by_columns) if row not in left_out]
    by_records += [by_columns[row] for row in odd]
    record_rows = rows_of_records([records[index] for index in by_records], schema)
    return pa.concat_tables([rows, record_rows]).take(np.argsort(np.array(order + by_records)))


def rows_of_records(records: Sequence[OutgoingRecord], schema: Any) -> Any:
    """As `parquet_rows`, each by way of its Avro record."""
    rows = [{**record.record_id.to_json(), **stream_value(record.assignment), **record.record} for record in records]
    arrays = [pa.array([row.get(field.name) for row in rows], type=field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def json_records(file: Any, path: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file of JSON lines, in its order."""
    rest = b""
    for block in _blocks(file, path):
        *lines, rest = (rest + block).split(b"\n")
        yield from map(json.loads, filter(None, lines))
    if rest:
        yield json.loads(rest)


def _blocks(file: Any, path: str) -> Iterator[bytes]:
    stream = pa.CompressedInputStream(file, "gzip") if path.endswith(".gz") else file
    while block := stream.read(_BLOCK):
        yield block


def joined(stream: Any, paths: Sequence[str], inputs: Callable[[str], AbstractContextManager[Any]]) -> None:
    """Write the records of several files of one definition and format into one, in this order, and close its stream.

    `inputs` opens one of them. Row groups of Parquet become as large as they are read best.
    """
    if paths[0].endswith(".parquet"):
        _join_parquet(stream, paths, inputs)
        return
    out = pa.CompressedOutputStream(stream, "gzip") if paths[0].endswith(".gz") else stream
    for path in paths:
        with inputs(path) as file:
            for block in _blocks(file, path):
                out.write(block)
    out.close()
    if not stream.closed:
        stream.close()


def _join_parquet(stream: Any, paths: Sequence[str], inputs: Callable[[str], AbstractContextManager[Any]]) -> None:
    writer: Any = None
    waiting: list[Any] = []
    for path in paths:
        with inputs(path) as file:
            source = pq.ParquetFile(file)
            if writer is None:
                group = source.metadata.row_group(0) if source.metadata.num_row_groups else None
                plain = group is not None and group.column(0).compression == "UNCOMPRESSED"
                writer = pq.ParquetWriter(stream, source.schema_arrow, compression="none" if plain else "zstd")
            for batch in source.iter_batches():
                waiting.append(batch)
                if sum(buffered.nbytes for buffered in waiting) >= _GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(waiting, writer.schema))
                    waiting = []
    if waiting:
        writer.write_table(pa.Table.from_batches(waiting, writer.schema))
    writer.close()
    stream.close()


def parquet_records(file: Any, table: Table) -> Iterator[dict[str, Any]]:
    """The same objects as they would be in a file of JSON lines, out of a Parquet file of this definition."""
    form, plain_schema = ChangeJson(table), arrow_schema(table, times=False)
    place_names = [name for name, _ in PLACE]
    for batch in pq.ParquetFile(file).iter_batches():
        for row in pa.Table.from_batches([batch]).cast(plain_schema).to_pylist():
            record_place = {name: row.pop(name) for name in place_names}
            value = form.write(form.change({"columns": {}, **row}))
            yield {"table": value.pop("table"), **{name: plain(item) for name, item in record_place.items()}, **value}
