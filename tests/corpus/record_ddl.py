"""Records DDL as a node logs it, as JSON lines: `python -m tests.corpus.record_ddl RELEASE FILE`.

A line is {"statement": CQL} or {"segment", "offset", "version", "payload": hex} of a mutation of `system_schema`, in
the order of the log; each mutation follows the statement that made it.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.frames import frames
from tailrace.commitlog.mutation import first_table
from tailrace.commitlog.sections import sections
from tailrace.local import CassandraSettings, LocalCassandra
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.system_tables import system_tables
from tests.integration.agents import cql
from tests.support.waiting import until

STATEMENTS: Final = (
    "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE shop.addr (street text, zip int)",
    "CREATE TABLE shop.orders (id int, at timestamp, home addr, old frozen<addr>, v text, s text STATIC,"
    " PRIMARY KEY (id, at)) WITH CLUSTERING ORDER BY (at DESC) AND cdc = true",
    "CREATE TABLE shop.notes (id text PRIMARY KEY, v blob)",
    "ALTER TABLE shop.orders ADD w int",
    "ALTER TABLE shop.orders DROP w",
    "ALTER TABLE shop.orders ADD w int",
    "ALTER TABLE shop.orders RENAME id TO number",
    "ALTER TYPE shop.addr ADD country text",
    "ALTER TYPE shop.addr RENAME zip TO postcode",
    "ALTER TABLE shop.orders WITH cdc = false",
    "ALTER TABLE shop.orders WITH cdc = true",
    "ALTER TABLE shop.notes WITH comment = 'no other definition'",
    "DROP TABLE shop.orders",
    "CREATE TABLE shop.orders (v text PRIMARY KEY, id int) WITH cdc = true",
    "DROP KEYSPACE shop",
)
_DDL: Final = frozenset(table.id for table in system_tables() if table.keyspace == "system_schema")


class _Log:
    """The node's commit log, kept: Cassandra deletes the segment of a DROP at once."""

    def __init__(self, node: LocalCassandra, directory: Path) -> None:
        self._from = node.commitlog
        self._kept = directory
        self._at = (0, 0)

    def read(self, into: list[dict[str, Any]]) -> int:
        """Append the mutations of system_schema that came since the last call, in order; how many."""
        for path in self._from.glob("CommitLog-*.log"):
            if not (self._kept / path.name).exists():
                (self._kept / path.name).hardlink_to(path)
        lines = [line for path in self._kept.iterdir() for line in _mutations(path)]
        lines = [line for line in lines if (line["segment"], line["offset"]) > self._at]
        lines.sort(key=lambda line: (line["segment"], line["offset"]))
        if lines:
            self._at = lines[-1]["segment"], lines[-1]["offset"]
        into += lines
        return len(lines)


def _mutations(path: Path) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    try:
        descriptor = read_descriptor(data)
    except DecodeError:
        return  # allocated, not begun
    for section in sections(descriptor, data):
        for frame in frames(section):
            if first_table(frame.payload, descriptor.version)[1] in _DDL:
                place = {"segment": descriptor.id, "offset": frame.end, "version": descriptor.version}
                yield {**place, "payload": frame.payload.hex()}


def record(release: str, file: Path) -> None:
    """Run the statements, one by one, on a node of this release."""
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        settings = CassandraSettings(release=release, segment_mib=4, sync_period_ms=50)
        with LocalCassandra(Path(directory) / "node", settings) as node, cql(node) as session:
            kept = Path(directory) / "kept"
            kept.mkdir()
            log = _Log(node, kept)
            until(lambda: bool(log.read([])), "the beginning of the log")
            for statement in STATEMENTS:
                session.execute(statement)
                lines.append({"statement": statement})
                until(lambda: bool(log.read(lines)), f"the log's lines of {statement}")
    with gzip.GzipFile(file, "wb", mtime=0) as out:
        out.write("".join(json.dumps(line) + "\n" for line in lines).encode())


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2]))
