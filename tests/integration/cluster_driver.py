"""A job on a cluster, run as a program: changes of one table as JSON lines, each with its worker.

Run with the table's name, then the settings' file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from tailrace_common.settings import load_settings
from tailrace_spark import changes
from tailrace_spark.job.session import spark_session

COLUMNS = "op string, value string, stream_id binary, marks array<string>, worker string"


def with_worker(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Adds what this process of an executor is."""
    from tailrace_common.build import compiled_sources
    from tailrace_spark.merge import row

    about = {
        "user": os.geteuid(),
        "directory": str(Path.cwd()),
        "python": sys.base_prefix,
        "compiled": len(compiled_sources()),
        "merge": str(row.__file__),
    }
    for batch in batches:
        yield batch.append_column("worker", pa.array([json.dumps(about)] * batch.num_rows, pa.string()))


def show(frame: DataFrame, _batch: int) -> None:
    for found in frame.mapInArrow(with_worker, COLUMNS).collect():
        shown = {**found.asDict(), "stream_id": found.stream_id.hex(), "worker": json.loads(found.worker)}
        sys.stdout.write(json.dumps(shown) + "\n")


def main(table: str, file: str) -> None:
    settings = load_settings(Path(file), os.environ)
    spark = spark_session(settings.stream.spark.reveal())
    frame = changes(spark, settings, table).selectExpr("op", "columns.v AS value", "stream_id", "marks")
    frame.writeStream.foreachBatch(show).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
