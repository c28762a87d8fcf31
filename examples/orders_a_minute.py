"""Orders and their sum by the minute, kept right when orders change.

Run it as `python examples/orders_a_minute.py -c tailrace.toml`.
`tailrace_spark.merging` merges each batch of changes into rows as SELECT returns them, on Spark's executors. What is
done with the rows is plain Spark: here they are stored as Parquet, and aggregated. An order that is changed, deleted or
comes late moves out of its minute and into another one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace_spark import changes, load_settings, merging, spark_session


def orders_a_minute(rows: DataFrame, placed: str, amount: str) -> DataFrame:
    """The number and the sum of orders by the minute in which they were placed."""
    orders = rows.where("row IS NOT NULL").select("row.*")
    minute = F.date_trunc("minute", F.col(placed)).alias("minute")
    return orders.groupBy(minute).agg(F.count("*").alias("orders"), F.sum(amount).alias("amount")).orderBy("minute")


class ParquetRows:
    """Stored rows in a folder: a version for each batch. A batch that comes again is read from the one before it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def read(self, batch: int) -> DataFrame | None:
        """The rows before a batch."""
        earlier = [version for version in self._versions() if version < batch]
        return self._spark.read.parquet(str(self._folder / str(max(earlier)))) if earlier else None

    def write(self, rows: DataFrame, batch: int) -> None:
        """Store the rows after a batch; of earlier versions the last one stays, in case the batch comes again."""
        rows.write.mode("overwrite").parquet(str(self._folder / str(batch)))
        for version in sorted(version for version in self._versions() if version < batch)[:-1]:
            shutil.rmtree(self._folder / str(version))

    def _versions(self) -> list[int]:
        return [int(done.parent.name) for done in self._folder.glob("*/_SUCCESS")]


def main() -> None:
    """Stream until Ctrl-C, or with --once until everything that is there was read; the minutes go to stdout as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-c", "--config", help="the settings, TOML")
    parser.add_argument("--table", default="shop.orders", help="keyspace.table")
    parser.add_argument("--placed", default="placed", help="its column of the time, a timestamp")
    parser.add_argument("--amount", default="amount", help="its column of the amount, a number")
    parser.add_argument("--folder", default="orders", help="for the rows, and the query's checkpoint")
    parser.add_argument("--once", action="store_true", help="end when everything that is there was read")
    arguments = parser.parse_args()
    settings = load_settings(arguments.config, os.environ)
    spark = spark_session(settings.stream.spark.reveal())
    stored = ParquetRows(spark, Path(arguments.folder) / "rows")

    def write(rows: DataFrame, batch: int) -> None:
        stored.write(rows, batch)
        after = stored.read(batch + 1)
        for minute in () if after is None else orders_a_minute(after, arguments.placed, arguments.amount).collect():
            shown = {"batch": batch, **minute.asDict(), "minute": minute.minute.isoformat()}
            sys.stdout.write(json.dumps(shown, default=str) + "\n")

    merge = merging(settings, arguments.table, stored.read, write)
    trigger = {"availableNow": True} if arguments.once else {"processingTime": "10 seconds"}
    writer = changes(spark, settings).writeStream.foreachBatch(merge).trigger(**trigger)
    query = writer.option("checkpointLocation", str(Path(arguments.folder) / "checkpoint")).start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
