"""Changes on their way while the demo runs: in Kafka, and then in the SQLite file that the stream writes."""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tailrace.demo.parts import PARTITIONS, PREFIX, DemoServices
from tailrace.demo.script import KEYSPACE, LAST, TABLES
from tailrace_common.closing import Closing
from tailrace_common.kafka import PartitionReader
from tailrace_common.topics import SchemaReader
from tailrace_schemas.avro.decode import reader_of
from tailrace_schemas.streams import StreamId
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition

_POLL_SECONDS: Final = 0.02
_BUSY_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Published:
    """A change in Kafka: the record that its topic has (contracts.md 3), and its partition's key in bytes."""

    table: Table
    record: Mapping[str, Any]
    key: bytes | None
    partition: KafkaPartition
    offset: int

    @property
    def row_key(self) -> dict[str, object]:
        """The key columns that it names: not the clustering columns of a static row, a range or a partition."""
        return {name: value for name, value in self.record["key"].items() if value is not None}


@dataclass(frozen=True, slots=True)
class Landed:
    """A change that the SQLite file has, the rows there now under its key, and its partition's stream id there."""

    change: Published
    rows: Sequence[Mapping[str, Any]]
    stream_id: str | None


class Flow(Closing):
    """Shows each change as soon as the SQLite file has it, and counts.

    `wall` is the time in seconds since the epoch; latencies are from write times after the beginning.
    """

    def __init__(self, parts: DemoServices, show: Callable[[Landed], None], wall: Callable[[], float]) -> None:
        config = {"bootstrap.servers": parts.kafka}
        self._open = ExitStack()
        self._schemas = self._open.enter_context(SchemaReader(config, PREFIX))
        topics = [f"{PREFIX}.{KEYSPACE}.{name}" for name in TABLES]
        partitions: list[KafkaPartition] = [(topic, index) for topic in topics for index in range(PARTITIONS)]
        self._readers = {
            partition: self._open.enter_context(PartitionReader(config, *partition)) for partition in partitions
        }
        self._waiting: dict[KafkaPartition, deque[Published]] = {partition: deque() for partition in partitions}
        self._parts = parts
        self._show = show
        self._wall = wall
        self._began = wall()
        self._last: set[str] = set()
        self._latencies: list[float] = []
        self.published = 0
        """How many changes are in Kafka."""
        self.landed = 0
        """How many of them the SQLite file has."""

    @property
    def complete(self) -> bool:
        """Whether the last change of every table has arrived in Kafka, and everything there in the SQLite file.

        One agent publishes in the order of the log: behind the last change there is nothing more.
        """
        return len(self._last) == len(TABLES) and self.landed == self.published

    @property
    def rows(self) -> int:
        """How many rows the SQLite file has."""
        return sum(len(self._select(f"SELECT 1 FROM {copy_of(name)}")) for name in TABLES)  # noqa: S608 - names of ours

    @property
    def median_seconds(self) -> float | None:
        """The middle one of the times from write to file, as far as statements did not choose their write times."""
        return sorted(self._latencies)[len(self._latencies) // 2] if self._latencies else None

    def turn(self) -> None:
        """Take what has come since, and show what the file has of it. Raises ServiceError."""
        for partition, reader in self._readers.items():
            while (record := reader.poll(_POLL_SECONDS)) is not None:
                self._take(partition, record.offset, record.value or b"")
        ends, landed = committed_ends(self._parts.checkpoint), list[Published]()
        for partition, waiting in self._waiting.items():
            while waiting and waiting[0].offset < ends.get(partition, 0):
                landed.append(waiting.popleft())
        for change in sorted(landed, key=_position):
            self._land(change)

    def close(self) -> None:
        """Leave the topics."""
        self._open.close()

    def _take(self, partition: KafkaPartition, offset: int, message: bytes) -> None:
        entry, record = self._schemas.decoded(message)
        change = Published(entry.table, record, reader_of(entry).change(record).key, partition, offset)
        self._waiting[partition].append(change)
        self.published += 1
        if LAST in change.row_key.values():
            self._last.add(change.table.name)

    def _land(self, change: Published) -> None:
        self.landed += 1
        written, now = change.record["written"] / 1e6, self._wall()
        if self._began <= written <= now:
            self._latencies.append(now - written)
        copy, key = copy_of(change.table.name), change.row_key
        condition = " AND ".join(f"{name} = ?" for name in key)
        rows = self._select(f"SELECT * FROM {copy} WHERE {condition}", *key.values())  # noqa: S608 - names of ours
        # The token decides, so a partition has one, wherever it has any.
        query = f"SELECT max(stream_id) AS stream_id FROM {copy}__state WHERE key = ?"  # noqa: S608 - a name of ours
        stored = [row["stream_id"] for row in self._select(query, change.key) if row["stream_id"] is not None]
        self._show(Landed(change, rows, str(StreamId(stored[0])) if stored else None))

    def _select(self, query: str, *values: object) -> list[Mapping[str, Any]]:
        """Rows as the stream's last batch has left them; none where the file, or a table, is not there yet."""
        if not self._parts.copy.exists():
            return []
        address = f"{self._parts.copy.as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS)) as connection:
            connection.row_factory = sqlite3.Row
            try:
                return [dict(row) for row in connection.execute(query, values)]
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    return []
                raise


def committed_ends(checkpoint: Path) -> Mapping[KafkaPartition, int]:
    """Per partition the offset after the last one that the sink has: Spark writes `commits/N` once it has batch N."""
    batches = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdecimal()]
    if not batches:
        return {}
    # A version line, then the batch's own metadata, then one line for each source.
    source = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()[2]
    ends = json.loads(source).items()
    return {(topic, int(partition)): end for topic, of_topic in ends for partition, end in of_topic.items()}


def copy_of(name: str) -> str:
    """The stream's name for a table of the demo: the default of sink.NAME.table."""
    return f"{KEYSPACE}_{name}"


def _position(change: Published) -> tuple[int, int, int]:
    """Where the change stood in the commit log."""
    source = change.record["source"]
    return source["segment"], source["offset"], source["index"]
