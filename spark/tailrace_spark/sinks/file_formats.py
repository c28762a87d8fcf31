"""Files of changes in two formats: records of one definition into a file, and out of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace_schemas.change_json import ChangeJson, plain
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_to_json
from tailrace_spark.sinks.change_log import LogRecord, place_value, stream_value
from tailrace_spark.sinks.parquet_schema import PLACE, arrow_schema

DEFINITION: Final = b"tailrace.table"
"""The key of Parquet's metadata under which a file says the definition of its table, as JSON."""


class FormatWriter(Protocol):
    """Writes one file, in the order of `write`."""

    def write(self, records: Sequence[LogRecord]) -> None: ...

    def size(self) -> int:
        """Bytes so far; what is not compressed yet is not counted."""

    def close(self) -> None:
        """End the file, and close its stream."""


class JsonLines:
    """JSON lines, as the console prints them."""

    def __init__(self, stream: Any, table: Table, *, compress: bool) -> None:  # noqa: ARG002 - a line says its table
        self._stream = stream
        self._out = pa.CompressedOutputStream(stream, "gzip") if compress else stream

    def write(self, records: Sequence[LogRecord]) -> None:
        lines = (json.dumps(record.value, ensure_ascii=False, allow_nan=False) for record in records)
        self._out.write("".join(f"{line}\n" for line in lines).encode())

    def size(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        self._out.close()
        if not self._stream.closed:
            self._stream.close()


class Parquet:
    """Parquet: each `write` is a row group."""

    def __init__(self, stream: Any, table: Table, *, compress: bool) -> None:
        self._stream = stream
        definition = json.dumps(table_to_json(table), ensure_ascii=False).encode()
        self._schema = arrow_schema(table).with_metadata({DEFINITION: definition})
        self._writer = pq.ParquetWriter(stream, self._schema, compression="zstd" if compress else "none")

    def write(self, records: Sequence[LogRecord]) -> None:
        rows = [{**place_value(one.place), **stream_value(one.assignment), **one.record} for one in records]
        arrays = [pa.array([row.get(field.name) for row in rows], type=field.type) for field in self._schema]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def size(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        self._writer.close()
        self._stream.close()


def json_records(file: Any, path: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file of JSON lines, in its order."""
    stream = pa.CompressedInputStream(file, "gzip") if path.endswith(".gz") else file
    for line in stream.read().decode().split("\n"):
        if line:
            yield json.loads(line)


def parquet_records(file: Any, table: Table) -> Iterator[dict[str, Any]]:
    """The same objects as they would be in a file of JSON lines, out of a Parquet file of this definition."""
    form, plain_schema = ChangeJson(table), arrow_schema(table, times=False)
    places = [name for name, _ in PLACE]
    for batch in pq.ParquetFile(file).iter_batches():
        for row in pa.Table.from_batches([batch]).cast(plain_schema).to_pylist():
            place = {name: row.pop(name) for name in places}
            value = form.write(form.change({"columns": {}, **row}))
            yield {"table": value.pop("table"), **{name: plain(item) for name, item in place.items()}, **value}
