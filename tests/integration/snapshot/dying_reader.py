"""Reads a table with Spark; two of its tasks are killed after their first page, once each. Prints count and sum of `k`.

Arguments: address, port, table, a directory for marks.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tailrace_common.java.find import java_home_for_spark
from tailrace_spark.snapshot.source import SnapshotSource

KILLED = 2


class DyingSource(SnapshotSource):
    """The data source, whose readers die."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return DyingReader(super().reader(schema), os.environ["MARKS"])


class DyingReader(DataSourceReader):
    """Kills its process after a task's first page, the first time that one of the first partitions is read."""

    def __init__(self, reader: DataSourceReader, marks: str) -> None:
        self.reader = reader
        self.marks = marks

    def partitions(self) -> list[InputPartition]:
        partitions = list(self.reader.partitions())
        for index, partition in enumerate(partitions):
            partition.index = index  # type: ignore[attr-defined]  # travels with it
        return partitions

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for batch in self.reader.read(partition):
            yield batch
            mark = Path(self.marks, str(partition.index))  # type: ignore[attr-defined]  # see above
            if partition.index < KILLED and not mark.exists():  # type: ignore[attr-defined]  # see above
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    address, port, table, marks = sys.argv[1:]
    os.environ["MARKS"] = marks
    os.environ["JAVA_HOME"] = str(java_home_for_spark())
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
    spark.dataSource.register(DyingSource)
    reader = spark.read.format("tailrace-snapshot").option("contact_points", address).option("port", port)
    frame = reader.option("page_rows", 10).option("ranges", 6).load(table)
    sys.stdout.write(f"{frame.count()} {frame.agg({'k': 'sum'}).collect()[0][0]}\n")
    spark.stop()


if __name__ == "__main__":
    main()
