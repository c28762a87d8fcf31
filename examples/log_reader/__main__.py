"""Replicates a table through its log table: `python -m examples.log_reader shop.orders shop.copy`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from cassandra.cluster import Cluster
from cassandra.metadata import TableMetadata

from examples.log_reader.comparison import differences, rows_of
from examples.log_reader.descriptions import Descriptions
from examples.log_reader.limits import behind_now, watermark
from examples.log_reader.reader import ProgressFile, Reader
from examples.log_reader.replication import Replicator


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 1 when --compare finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m examples.log_reader", description=__doc__)
    parser.add_argument("table", help="keyspace.table whose log is read")
    parser.add_argument("target", help="keyspace.table of the same definition, which is written")
    parser.add_argument("--contact", default="127.0.0.1", help="a node")
    parser.add_argument("--port", type=int, default=9042)
    parser.add_argument("--descriptions", default="tailrace", help="keyspace of the description tables")
    parser.add_argument("--progress", type=Path, default=Path("progress.json"), help="file that says how far it is")
    parser.add_argument("--window", type=float, default=60, help="seconds of the log that are read at once")
    parser.add_argument(
        "--confidence",
        type=float,
        metavar="SECONDS",
        help="read so far behind now, instead of up to the log's watermark: for a log of ScyllaDB's own",
    )
    parser.add_argument("--once", action="store_true", help="end when there is nothing more to read yet")
    parser.add_argument("--compare", action="store_true", help="compare both tables at the end")
    arguments = parser.parse_args(words)
    # A busy node answers the driver's own queries later than its two seconds.
    driver = Cluster([arguments.contact], port=arguments.port, control_connection_timeout=30)
    with driver as cluster, cluster.connect() as session:
        table, target = (_table(cluster, name) for name in (arguments.table, arguments.target))
        descriptions = Descriptions(session, arguments.descriptions)
        progress = ProgressFile(arguments.progress)
        log = f"{table.name}_scylla_cdc_log"
        if arguments.confidence is None:
            limit = watermark(session, table.keyspace_name, log)
        else:
            limit = behind_now(arguments.confidence)
        log = f'{table.keyspace_name}."{log}"'
        reader = Reader(session, log, descriptions, progress, limit, window=arguments.window)
        replicate = Replicator(session, target)
        while True:
            if not reader.read(replicate):
                if arguments.once:
                    break
                time.sleep(1)
        found = list(differences(session, table, target)) if arguments.compare else []
        print(f"{rows_of(session, target)} rows in {arguments.target}", *found, sep="\n")
        return 1 if found else 0


def _table(cluster: Cluster, name: str) -> TableMetadata:
    keyspace, _, table = name.partition(".")
    return cluster.metadata.keyspaces[keyspace].tables[table]


if __name__ == "__main__":
    raise SystemExit(main())
