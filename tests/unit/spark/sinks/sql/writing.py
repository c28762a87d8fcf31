"""One batch by a SQL sink, and tables with odd names."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from tailrace_schemas.change import Change
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.unit.spark.sinks.contract import Database, piece
from tests.unit.tables import table


def named(partition: str, clustering: str, *regular: str) -> Table:
    """The table `shop.t` with a text key of these names."""
    columns = dict.fromkeys(regular or ("v",), "text")
    return table({partition: "text"}, {clustering: "text"}, {"s": "text"}, columns, keyspace="shop")


def write(database: Database, *changes: Change, announced: int = -1, **options: Any) -> Summary:
    """One micro-batch through a sink of its own, which has these options of SqlSink."""
    with closing(SqlSink(database.url, **options)) as sink:
        return write_here(sink, [piece(changes, announced=announced)])
