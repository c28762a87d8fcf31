"""Changes on their way while the demo runs: in Kafka, and then in the SQLite file that the stream writes."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tailrace.cluster import LiveCluster
from tailrace.demo.parts import PARTITIONS, PREFIX, DemoServices
from tailrace.demo.script import KEYSPACE, LAST, LAST_STATEMENTS, SCHEMA, TABLES, statements
from tailrace_common.cli.console import print_json
from tailrace_common.closing import Closing
from tailrace_common.kafka import PartitionReader
from tailrace_common.sections.cassandra import CassandraSettings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.avro.decode import reader_of
from tailrace_schemas.change_json import key_words
from tailrace_schemas.cql.json_value import plain
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.streams import StreamId
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition

_POLL_SECONDS: Final = 0.02
_BUSY_SECONDS: Final = 10.0
_STYLES: Final = {"insert": "green", "update": "cyan"}
_PER_SECOND: Final = 60.0  # so that it can be watched
_STANDSTILL_SECONDS: Final = 180.0


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


class Screen:
    """Shows changes as they arrive; on a console also how far all is, of `total` statements (None: not known)."""

    def __init__(self, console: Console | None, total: int | None) -> None:
        self._console = console
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=console, disable=console is None)
        self._written = self._bars.add_task("Cassandra", total=total, words="starting")
        self._landed = self._bars.add_task("SQLite", total=None, words="")
        self._bars.start()

    def landed(self, landed: Landed) -> None:
        """A change has arrived in the SQLite file."""
        if self._console is None:
            print_json(line(landed))
        else:
            self._console.print(words(landed), no_wrap=True, overflow="ellipsis", crop=True)

    def refresh(self, written: int, published: int, landed: int, median_seconds: float | None) -> None:
        """How far it is now: statements, changes in Kafka and in the SQLite file, from write to file."""
        latency = "" if median_seconds is None else f", {median_seconds:.1f} s after the write (median)"
        arrived = f"{landed} of {published} changes in Kafka{latency}"
        self._bars.update(self._written, completed=written, words=f"{written} statements")
        self._bars.update(self._landed, completed=landed, total=published or None, words=arrived)

    def close(self) -> None:
        """Leave the terminal as it was, with the last bars."""
        with suppress(OSError):  # the terminal is gone
            self._bars.stop()


def line(landed: Landed) -> dict[str, object]:
    """The JSON of a change: as `tailrace tail` has it, its topic, and the row in the file, or how many there are."""
    change = landed.change
    record: Any = plain(dict(change.record))
    location = {"topic": change.partition[0], "partition": change.partition[1], "offset": change.offset}
    line = {"table": str(change.table), **location, **record, "stream_id": landed.stream_id}
    if len(change.row_key) < len(change.table.key):
        return {**line, "rows": len(landed.rows)}
    return {**line, "row": plain(dict(landed.rows[0])) if landed.rows else None}


def words(landed: Landed) -> Text:
    """A change for people, and what the file has now; the columns that the change wrote in front."""
    change, op = landed.change, landed.change.record["op"]
    head = f"{op.replace('_', ' ')} {change.table.name}"
    location = f"[{change.partition[1]}] @ {change.offset}"
    key = key_words(change.table, change.record)
    return Text.assemble((f"{head:<25}", _STYLES.get(op, "red")), f" {key}  ", (f"{location}  ", "dim"), _row(landed))


def _row(landed: Landed) -> str:
    change = landed.change
    if len(change.row_key) < len(change.table.key):
        return f"{len(landed.rows)} rows in the partition"
    if not landed.rows:
        return "no such row"
    row, touched = landed.rows[0], change.record["columns"]
    names = [name for name in row if row[name] is not None and name not in change.row_key]
    names.sort(key=lambda name: (touched.get(name) is None, name))
    return ", ".join(f"{name}={_short(row[name])}" for name in names) or "the key alone"


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value if isinstance(value, str) else json.dumps(value)


def written(seed: int, changes: int, seconds: float | None) -> Iterator[str]:
    """What is written: a statement, then so many, or for so long; then a last row to each table."""
    script = statements(seed, time.time_ns() // 1000)
    yield next(script)
    if seconds is None:
        yield from islice(script, changes - 1)
    else:
        limit = time.monotonic() + seconds
        yield from takewhile(lambda _: time.monotonic() < limit, script)
    yield from LAST_STATEMENTS


def prepared(parts: DemoServices) -> LiveCluster:
    """A connection, and the tables."""
    node = parts.services.cassandra
    cluster = LiveCluster(CassandraSettings(contact_points=(node.address,), port=node.port))
    for statement in SCHEMA:
        cluster.execute(statement)
    return cluster


def write(script: Iterator[str], source: LiveCluster, parts: DemoServices, flow: Flow, screen: Screen) -> int:
    """Write the first statement, the others once it has arrived, and follow until all have; how many there were.

    Spark takes its time for its first batch: the others are to be seen arriving one after the other.
    """
    count, began = 0, time.monotonic()
    news, last_news = (0, 0), began
    while not flow.complete:
        parts.require_running()
        now = time.monotonic()
        if not flow.landed:
            began = now
        for statement in islice(script, max(0, 1 + int((now - began) * _PER_SECOND) - count)):
            source.execute(statement)
            count += 1
        flow.turn()
        screen.refresh(count, flow.published, flow.landed, flow.median_seconds)
        if (count, flow.landed) != news:
            news, last_news = (count, flow.landed), now
        elif now > last_news + _STANDSTILL_SECONDS:
            raise ServiceError(
                f"nothing has arrived for {_STANDSTILL_SECONDS:.0f} s: the SQLite file has {flow.landed} of the "
                f"{flow.published} changes in Kafka. Look into {', '.join(str(service.log) for service in parts.all)}"
            )
    return count
