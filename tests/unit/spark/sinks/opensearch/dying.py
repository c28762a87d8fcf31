"""Writes one batch of rows into indexes, until it is killed: `python -m ... URL PREFIX ROWS`."""

from __future__ import annotations

import sys

from tailrace_schemas.change import Change
from tailrace_spark.sinks.opensearch.client import SearchClient
from tailrace_spark.sinks.opensearch.settings import OpensearchSinkSettings
from tailrace_spark.sinks.opensearch.sink import OpensearchSink
from tailrace_spark.sinks.protocol import write_here
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import piece
from tests.unit.spark.sinks.merging_contract import WIDE


def batch(rows: int) -> list[Change]:
    """Rows of a few partitions, with statics, and a range of each deleted."""
    log = Log(WIDE)
    changes = [log.insert((n % 7,), (n,), 10, v=f"row {n}") for n in range(rows)]
    changes += [log.static((n,), 11, s=f"static {n}") for n in range(7)]
    return changes + [log.delete_range((n,), (0,), (rows // 3,), 12) for n in range(0, 7, 2)]


def main(url: str, prefix: str, rows: int) -> None:
    """Small bulk requests, so that there are many moments to die at."""
    settings = OpensearchSinkSettings(
        url=url, index=prefix + ".{keyspace}.{table}", replicas=0, shards=1, bulk_documents=20
    )
    write_here(OpensearchSink(SearchClient("search", settings), settings, clock=lambda: 0), [piece(batch(rows))])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
