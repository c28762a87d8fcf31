"""The data source `tailrace-snapshot` for `spark.read`: a table of Cassandra by token ranges, on the executors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tailrace_schemas.avro import Encoder, schema_records
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import table_topic
from tailrace_spark.snapshot.changes import CHANGE_SCHEMA, TaskRecords, messages
from tailrace_spark.snapshot.ranges import Split, deal
from tailrace_spark.snapshot.session import ClusterView, TableReading, range_reader, survey
from tailrace_spark.snapshot.settings import settings_of
from tailrace_spark.streams.assign import begin_task

FORMAT: Final = "tailrace-snapshot"


def register(spark: SparkSession) -> None:
    """Let a session know `spark.read.format("tailrace-snapshot")`; executors need this package too."""
    spark.dataSource.register(SnapshotSource)


class SnapshotSource(DataSource):
    """A table of Cassandra. Its options are the fields of `SnapshotSettings` (docs/snapshots.md)."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> StructType:
        """The DataFrame's columns, as the table is now. Raises SettingsError and ServiceError."""
        settings = settings_of(self.options, os.environ)
        with closing(ClusterView(settings)) as view:
            return _schema(view.reading(settings, view.table()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the table as it is now. Raises SettingsError where that is not `schema`'s any more."""
        survey_now = survey(settings_of(self.options, os.environ))
        if _schema(survey_now.reading).fieldNames() != schema.fieldNames():
            raise SettingsError(f"{survey_now.table} has other columns than the DataFrame: load it again")
        return SnapshotReader(survey_now.reading, deal(survey_now.splits(), survey_now.reading.settings.limits))


def change_schemas(options: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The records of `<prefix>.schemas`, keys and values, that readers of a table's changes need.

    `options` are those of the data source. Raises SettingsError and ServiceError.
    """
    settings = settings_of(options, os.environ)
    with closing(ClusterView(settings)) as view:
        table = view.table()
    topic = table_topic(settings.prefix, table.keyspace, table.name, table.id)
    return schema_records(Encoder(table, settings.prefix), topic)


class SnapshotReader(DataSourceReader):
    """Reads ranges in tasks. Pickled it has secrets, but not the tasks: each gets its own."""

    def __init__(self, reading: TableReading, tasks: Sequence[Sequence[Split]] = (), count: int = 1) -> None:
        self._reading = reading
        self._tasks = tasks
        self._count = len(tasks) or count

    def __reduce__(self) -> tuple[Any, ...]:
        return SnapshotReader, (self._reading, (), self._count)

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task."""
        return [InputPartition(tuple(task)) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The RecordBatches of a task's ranges. Raises ServiceError where one cannot be read."""
        begin_task()
        reading = self._reading
        shape = reading.shape
        with range_reader(reading, self._count) as reader:
            pages = reader.pages(partition.value)
            if reading.settings.rows == "columns":
                for page in pages:
                    yield shape.batch(page.parsed)
                return
            encoder = Encoder(reading.table, reading.settings.prefix)
            records = TaskRecords(reading.table, shape.selected, encoder, reading.datacenter)
            for page in pages:
                yield messages(records.of(page))


def _schema(reading: TableReading) -> StructType:
    return from_arrow_schema(reading.shape.schema if reading.settings.rows == "columns" else CHANGE_SCHEMA)
