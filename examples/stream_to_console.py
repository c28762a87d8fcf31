"""Prints changes as they arrive, with their stream ids: `python examples/stream_to_console.py -c tailrace.toml`.

`tailrace_spark.changes` gives a streaming DataFrame; what is done with it is plain Spark.
"""

from __future__ import annotations

import argparse
import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tailrace_spark import changes, load_settings, spark_session


def readable(frame: DataFrame) -> DataFrame:
    """What a person looks at: the change, its place, its stream."""
    return frame.select(
        "op",
        F.concat_ws(".", "keyspace", "table").alias("table"),
        F.timestamp_micros("written").alias("written"),
        F.concat_ws("/", "topic", "partition", "offset").alias("place"),
        F.lower(F.hex("stream_id")).alias("stream"),
        F.timestamp_millis("generation").alias("generation"),
        F.concat_ws(",", "marks").alias("marks"),
    )


def main() -> None:
    """Stream to the console until Ctrl-C, or with --once until everything that is there was shown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-c", "--config", help="the settings, TOML")
    parser.add_argument("--table", help="keyspace.table: one table, with its typed columns")
    parser.add_argument("--once", action="store_true", help="end when everything that is there was shown")
    arguments = parser.parse_args()
    settings = load_settings(arguments.config, os.environ)
    spark = spark_session(settings.stream.spark.reveal())
    frame = changes(spark, settings, arguments.table)
    shown = frame.select("op", "key.*", "columns.*") if arguments.table else readable(frame)
    trigger = {"availableNow": True} if arguments.once else {"processingTime": "1 second"}
    query = shown.writeStream.format("console").option("truncate", "false").trigger(**trigger).start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
