"""Parquet files that no commit of a Delta table names yet: tasks write them, and the driver commits them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_GROUP_BYTES: Final = 32 << 20  # of a row group, in memory
_OPEN_FILES: Final = 64  # a backfill may have years of days at once; a file that is ended early is just smaller
_LONGEST_TEXT: Final = 64  # characters that a statistic has: longer texts have none
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """One file: its path from the table's root, its size in bytes, and Delta's statistics of it as JSON.

    `partition` has its value of the column that the table is partitioned by."""

    path: str
    size: int
    partition: Mapping[str, str | None]
    stats: str


def write_files(
    filesystem: Any, batches: Iterable[Any], schema: Any, partitioned_by: str | None, file_bytes: int
) -> list[ParquetFile]:
    """Write RecordBatches of a schema below the root of a pyarrow FileSystem: files of about this size in memory.

    Their names were never used before. Raises OSError as the file system does.
    """
    written: list[ParquetFile] = []
    open_files: dict[str | None, _OpenFile] = {}
    try:
        for value, rows in _by_partition(batches, partitioned_by):
            file = open_files.pop(value, None)
            if file is None:
                if len(open_files) >= _OPEN_FILES:
                    written.append(open_files.pop(next(iter(open_files))).end())
                file = _OpenFile(filesystem, schema, partitioned_by, value)
            file.add(rows)
            if file.octets >= file_bytes:
                written.append(file.end())
            else:
                open_files[value] = file  # the last one used stands last
        while open_files:
            written.append(open_files.pop(next(iter(open_files))).end())
    except BaseException:
        for file in open_files.values():
            file.abandon()
        raise
    return written


def _by_partition(batches: Iterable[Any], partitioned_by: str | None) -> Iterator[tuple[str | None, Any]]:
    """The rows of each batch by the value of a column, as Delta writes it; without that column."""
    for batch in batches:
        if not len(batch):
            continue
        if partitioned_by is None:
            yield None, batch
            continue
        values, rows = batch.column(partitioned_by), batch.drop_columns([partitioned_by])
        for value in pc.unique(values):
            is_value = pc.is_null(values) if value.as_py() is None else pc.equal(values, value)
            yield None if value.as_py() is None else str(value.as_py()), rows.filter(is_value)


class _OpenFile:
    """A file that is being written."""

    def __init__(self, filesystem: Any, schema: Any, partitioned_by: str | None, value: str | None) -> None:
        self._filesystem = filesystem
        self._partition = {} if partitioned_by is None else {partitioned_by: value}
        directory = "" if partitioned_by is None else f"{partitioned_by}={_NO_VALUE if value is None else value}/"
        self._path = f"{directory}part-{uuid4()}-c000.snappy.parquet"
        self._schema = pa.schema([field for field in schema if field.name != partitioned_by])
        if directory:
            filesystem.create_dir(directory.rstrip("/"), recursive=True)
        self._stream = filesystem.open_output_stream(self._path, compression=None)
        self._metadata: list[Any] = []
        self._writer = pq.ParquetWriter(
            self._stream, self._schema, compression="snappy", metadata_collector=self._metadata
        )
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self.octets = 0

    def add(self, rows: Any) -> None:
        """Take a RecordBatch."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        self.octets += rows.nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def end(self) -> ParquetFile:
        """The file, whole."""
        self._flush()
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        return ParquetFile(self._path, size, self._partition, _statistics(self._metadata[0], self._schema))

    def abandon(self) -> None:
        """Abandon the file: no reader sees its part."""
        self._writer.close()
        self._stream.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting, self._waiting_bytes = [], 0


def _statistics(metadata: Any, schema: Any) -> str:
    """Delta's statistics by Parquet's: of whole numbers, dates, timestamps and short texts that are no fields."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    without: set[str] = set()
    plain = {field.name for field in schema if _is_told(field.type)}
    for group_index in range(metadata.num_row_groups):
        group = metadata.row_group(group_index)
        for index in range(group.num_columns):
            column = group.column(index)
            name, statistics = column.path_in_schema, column.statistics
            if name not in plain:
                continue
            if statistics is None or not statistics.has_null_count:
                without.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + statistics.null_count
            if statistics.has_min_max:
                least[name] = min(least.get(name, statistics.min), statistics.min)
                greatest[name] = max(greatest.get(name, statistics.max), statistics.max)
            elif statistics.null_count < column.num_values:
                without.add(name)
    bounded = [name for name in least if name not in without and _is_short(least[name]) and _is_short(greatest[name])]
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": {name: _said(least[name]) for name in bounded},
            "maxValues": {name: _said(greatest[name]) for name in bounded},
            "nullCount": {name: count for name, count in nulls.items() if name not in without},
        }
    )


def _is_told(of: Any) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_date(of) or pa.types.is_timestamp(of) or pa.types.is_string(of))


def _is_short(value: object) -> bool:
    return not isinstance(value, str) or len(value) <= _LONGEST_TEXT


def _said(value: object) -> object:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")  # years before 1000 have four digits too
    return value.isoformat() if isinstance(value, date) else value
