"""A node with a small cdc_raw, its keyspace and its agents."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from cassandra import WriteFailure
from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args

from tailrace.local import LocalCassandra, LocalKafka
from tailrace.segments.files import list_segments
from tailrace_common.kafka import TopicReader
from tests.integration.agents import (
    AgentProcess,
    Published,
    cql,
    create_keyspace,
    published,
    settings_for,
    start_here,
)
from tests.support.waiting import until

# Segments of 1 MiB: Cassandra refuses writes with cdc, or deletes, at so many of them.
LIMIT = 24
ROW = "x" * 20_000
ROWS = 52  # fill a segment


class Bench:
    """One test's node, keyspace, prefix and agents. Spool and archive are beside the node's directory."""

    def __init__(self, node: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace: str, directory: Path) -> None:
        self.node = node
        self.kafka = kafka
        self.prefix = prefix
        self.keyspace = keyspace
        self.directory = directory
        self.spool = directory / "spool"
        self.archive = directory / "archive"

    def agent(self, **settings: object) -> AgentProcess:
        """An agent, not started."""
        whole = settings_for(self.node, self.kafka, self.prefix, self.keyspace)
        whole["agent"] |= {"spool_directory": str(self.spool), "archive_directory": str(self.archive), **settings}
        return AgentProcess(self.directory, whole, "agent")

    def begin(self) -> None:
        """A keyspace and a table of k int, v text; agents begin at this instant."""
        with cql(self.node) as session:
            create_keyspace(session, self.keyspace)
            start_here(session, self.node, self.kafka, self.prefix, self.keyspace)
            session.execute(f"CREATE TABLE {self.keyspace}.t (k int PRIMARY KEY, v text) WITH cdc = true")

    def write(self, session: Session, keys: range, concurrency: int = 4) -> list[int]:
        """Rows of 20 kB; the keys that Cassandra took."""
        insert = session.prepare(f"INSERT INTO {self.keyspace}.t (k, v) VALUES (?, ?)")
        results = execute_concurrent_with_args(
            session, insert, [(key, ROW) for key in keys], concurrency, raise_on_first_error=False
        )
        assert all(ok or isinstance(answer, WriteFailure) for ok, answer in results), results
        return [key for key, (ok, _) in zip(keys, results, strict=True) if ok]

    def write_as_room_is_made(self, session: Session, keys: range) -> None:
        """The same, a segment's worth at a time; each must be taken. Production fills its segments more slowly."""
        for start in range(keys.start, keys.stop, ROWS):
            until(lambda: self.used() < (LIMIT - 3) << 20, "room in cdc_raw: nobody makes it")
            some = keys[start - keys.start : start - keys.start + ROWS]
            assert self.write(session, some) == list(some)

    def used(self) -> int:
        """Bytes in cdc_raw, as Cassandra counts them."""
        sizes = 0
        for path in self.node.cdc_raw.iterdir():
            with suppress(FileNotFoundError):
                sizes += path.stat().st_size
        return sizes

    def records(self) -> list[Published]:
        """What is in the table's topic."""
        return published(self.kafka, self.prefix, f"{self.prefix}.{self.keyspace}.t")

    def losses(self) -> dict[str, Any]:
        """What `.progress` says of missing segments, by the last two parts of its key."""
        config: dict[str, bool | int | float | str] = {"bootstrap.servers": self.kafka.bootstrap}
        with TopicReader(config, f"{self.prefix}.progress", beginning=True) as reader:
            records = [record for _, record in reader.read_to_end()]
        keys = [(record.key or b"").decode().split("/") for record in records]
        return {
            "/".join(key[3:]): json.loads(record.value or b"")
            for key, record in zip(keys, records, strict=True)
            if key[2:3] == ["loss"]
        }

    def logs(self) -> list[int]:
        """Ids in cdc_raw."""
        return [files.id for files in list_segments(self.node.cdc_raw).segments if files.log is not None]
