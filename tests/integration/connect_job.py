"""A job by Spark Connect, run as a program: changes of all tables, and one table's typed columns, as JSON.

Run with the server's address, the settings' file, a folder for what is written, and the table's name.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.errors.exceptions.connect import SparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace_common.settings import load_settings
from tailrace_spark import changes
from tests.support.waiting import until


def started(writer: DataStreamWriter) -> StreamingQuery:
    """The query. Spark gives its Python worker ten seconds to start, which a busy machine may need more than."""

    def attempt() -> StreamingQuery | None:
        try:
            return writer.start()
        except SparkException as error:
            if "failed to connect back" not in str(error):
                raise
            return None

    return until(attempt, "Spark's Python worker")


def drained(frame: DataFrame, folder: Path, name: str) -> DataFrame:
    """All that the topics have by now, written batch by batch and read back."""
    path = str(folder / name)

    def keep(batch: DataFrame, _number: int) -> None:
        batch.write.mode("append").parquet(path)

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", f"{path}-checkpoint")
    started(writer.trigger(availableNow=True)).awaitTermination()
    return frame.sparkSession.read.parquet(path)


def main(remote: str, file: str, folder: str, table: str) -> None:
    settings = load_settings(Path(file), os.environ)
    spark = SparkSession.builder.remote(remote).getOrCreate()
    every = drained(changes(spark, settings), Path(folder), "every")
    one = drained(changes(spark, settings, table, one_copy_seconds=60), Path(folder), "one")
    found = {
        "session": type(spark).__module__,
        "every": [
            [row.op, row.token, row.stream_id.hex(), row.marks]
            for row in every.select("op", "token", "stream_id", "marks").collect()
        ],
        "one": [[row.id, row.v] for row in one.selectExpr("key.id AS id", "columns.v AS v").collect()],
    }
    sys.stdout.write(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
