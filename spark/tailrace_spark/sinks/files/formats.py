"""Files of changes in two formats: records of one definition into a file, and what is read back of one.

Kafka's topic, partition, and the first and last offset of a file's changes; of a mutation's changes the first one's
counts (`transactions`). A dead letter that was replayed has a file of its own. Values alone, no I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace_common.sections.template import directory_name, fit
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_to_json
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.sinks.arrow.change_columns import ChangeColumns
from tailrace_spark.sinks.arrow.schema import arrow_schema
from tailrace_spark.sinks.arrow.types import conformed, delta_schema
from tailrace_spark.sinks.arrow.values import change_batch
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, stream_value
from tailrace_spark.sinks.files.settings import FilesSinkSettings

_LONGEST_TOPIC: Final = 60  # some file systems have 143 bytes for a name
_NAME: Final = re.compile(r"(.+-[0-9]+)-([0-9]{20})-(?:([0-9]{20})|replayed)\.(?:parquet|jsonl|jsonl\.gz)")
DEFINITION: Final = b"tailrace.table"
"""The key of Parquet's metadata under which a file says the definition of its table, as JSON."""

_BLOCK: Final = 1 << 20
_GROUP_BYTES: Final = 32 << 20  # of columns, in memory


class FileName(NamedTuple):
    """A file by its name: `source` is that of its topic's partition. `last` is None for a replayed dead letter."""

    source: str
    first: int
    last: int | None

    @classmethod
    def of(cls, path: str) -> Self | None:
        """From its path; None for a name that is not ours."""
        named = _NAME.fullmatch(path.rpartition("/")[2])
        if named is None:
            return None
        return cls(named[1], int(named[2]), None if named[3] is None else int(named[3]))

    def with_suffix(self, suffix: str) -> str:
        """The name of a file."""
        end = "replayed" if self.last is None else f"{self.last:020}"
        return f"{self.source}-{self.first:020}-{end}{suffix}"


def source_of(partition: KafkaPartition) -> str:
    """What the names of the files of a topic's partition begin with, and of no other's."""
    return f"{fit(partition[0], _LONGEST_TOPIC)}-{partition[1]}"


def directory_of(table: Table, day: str | None = None) -> str:
    """That of a table's files, or of those of a day."""
    of_table = directory_name(table.keyspace, table.name)
    return of_table if day is None else f"{of_table}/day={day}"


class FormatWriter(Protocol):
    """Writes one file, in the order of `write`."""

    def write(self, records: Sequence[OutgoingRecord]) -> None: ...

    def size(self) -> int:
        """Bytes so far; what is not compressed yet is not counted."""

    def close(self) -> None:
        """End the file, and close its stream."""


def new_writer(settings: FilesSinkSettings, stream: Any, table: Table) -> FormatWriter:
    """What writes the changes of a definition to a stream."""
    kind = Parquet if settings.format == "parquet" else JsonLines
    return kind(stream, table, compress=settings.compress)


def suffix_of(settings: FilesSinkSettings) -> str:
    """What the names of its files end with."""
    return ".parquet" if settings.format == "parquet" else ".jsonl.gz" if settings.compress else ".jsonl"


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
    stream = pa.CompressedInputStream(file, "gzip") if path.endswith(".gz") else file
    rest = b""
    while block := stream.read(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        yield from map(json.loads, filter(None, lines))
    if rest:
        yield json.loads(rest)


def offsets_of(file: Any, path: str) -> set[int]:
    """The offsets of the changes in a file of either format."""
    if path.endswith(".parquet"):
        return set(pq.read_table(file, columns=["offset"])["offset"].to_pylist())
    return {record["offset"] for record in json_records(file, path)}
