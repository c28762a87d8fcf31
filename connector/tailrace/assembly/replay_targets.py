"""Where `tailrace replay` puts changes: into Kafka as the agent does, or into a file as `tailrace dump` prints them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO
from uuid import UUID, uuid4

from tailrace.assembly.schema_file import chosen, definitions_of
from tailrace.assembly.services import open_router, pace_of, sizes_of, topics_of
from tailrace.changes.transcode import Transcoder
from tailrace.cluster import LiveCluster
from tailrace.commitlog.frames import Entry
from tailrace.history.records import HistoryRecord, history_of, read_history
from tailrace.history.schema import SchemaHistory
from tailrace.publish.kafka import KafkaTopics
from tailrace.replay import Bounds, KafkaOutlet
from tailrace.segments.printing import ChangesPrinter
from tailrace_common.cli.console import say
from tailrace_common.kafka import SUPPOSED, KafkaTransactions, Pace, TopicReader
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.selection import Selection
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.change import Origin, Source
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.position import NO_POSITION
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal, internal_topic

_ALL_EPOCHS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Origins:
    """Whose segments they are, and the definitions that explain them."""

    tables: tuple[Table, ...]
    host: str = ""
    datacenter: str = ""


def origins_of(settings: Settings, schema: Path | None, host: str | None) -> Origins:
    """From the schema file, or from the cluster, whose node is taken for the segments' host unless one is named.

    Raises SettingsError, ServiceError.
    """
    if schema is not None:
        return Origins(definitions_of(schema)[0], host or "")
    with closing(LiveCluster(settings.cluster)) as cluster:
        node = cluster.check()
        tables = (*system_tables(), *cluster.definitions().tables)
        if host in (None, node.host):
            return Origins(tables, node.host, node.datacenter)
        datacenters = {ring_node.host: ring_node.datacenter for ring_node in cluster.ring().nodes}
        return Origins(tables, host or "", datacenters.get(host or "", ""))


def with_announced(tables: tuple[Table, ...], entries: Iterable[SchemaEntry]) -> tuple[Table, ...]:
    """The tables, behind those that `.schemas` alone knows: dropped since, but segments still name them.

    Of such a one the definition that was announced last.
    """
    existing_ids = {table.id for table in tables}
    ordered = sorted(entries, key=lambda entry: entry.announced)
    dropped = {entry.table.id: entry.table for entry in ordered if entry.table.id not in existing_ids}
    return (*dropped.values(), *tables)


def require_selected(tables: Iterable[Table], table_ids: frozenset[UUID] | None, selection: Selection) -> None:
    """Raise SettingsError where a table that was named is one that the settings keep out of Kafka."""
    named = [table for table in tables if table_ids is not None and table.id in table_ids]
    hidden = sorted({str(table) for table in named if not selection.wants(table)})
    if hidden:
        raise SettingsError(f"--table: [tables] of the settings leaves {', '.join(hidden)} out; --to FILE prints it")


def history_records(kafka: Mapping[str, Scalar], prefix: str, host: str) -> tuple[HistoryRecord, ...]:
    """A host's records in `.schema-history`, by position. Raises ServiceError, HistoryError."""
    with TopicReader(kafka, internal_topic(prefix, Internal.SCHEMA_HISTORY), beginning=True) as reader:
        keyed_values = ((record.key, record.value) for _, record in reader.read_to_end() if record.key is not None)
        return read_history(host, keyed_values)


def history_of_host(kafka: Mapping[str, Scalar], prefix: str, host: str) -> SchemaHistory:
    """What `.schema-history` says of a host; empty where it says nothing. Raises ServiceError, HistoryError."""
    records = history_records(kafka, prefix, host)
    history = history_of(records)
    # All epochs are met: what an update rests on is there, or gone for good.
    return history.up_to(_ALL_EPOCHS) if any(record.metadata is not None for record in records) else history


def _transactions(settings: Settings, topics: KafkaTopics, pace: Pace) -> KafkaTransactions:
    prefix = settings.topics.prefix
    return KafkaTransactions(
        settings.kafka.reveal(),
        f"{prefix}.replay.{uuid4()}",
        internal_topic(prefix, Internal.OFFSETS),
        clock=time.monotonic,
        timeout=settings.agent.transaction_timeout_seconds,
        sizes=sizes_of(settings, topics),
        pace=pace,
        fenced="somebody ended this replay's transactions: what it had not committed is not published",
    )


@contextmanager
def kafka_outlet(
    settings: Settings, origins: Origins, names: list[str] | None, bounds: Bounds, *, present: bool = False
) -> Iterator[KafkaOutlet]:
    """Transactions of an id of their own; what is not committed at the exit is given up.

    Mutations are read by the definitions that held at their positions, as far as the host's schema history has them.
    All others, and all where `present`, are read by those of `origins`. Raises SettingsError, ServiceError,
    HistoryError.
    """
    kafka, prefix = settings.kafka.reveal(), settings.topics.prefix
    selection = settings.tables.selection
    with ExitStack() as stack:
        topics = topics_of(settings)
        router = open_router(settings, topics, selection.wants, stack)
        with SchemaReader(kafka, prefix) as schemas:
            schemas.refresh()
            table_ids, tables = chosen(with_announced(origins.tables, schemas.values()), names)
        require_selected(tables, table_ids, selection)
        history = SchemaHistory() if present else history_of_host(kafka, prefix, origins.host)
        say(f"by the definitions {'of the time' if history.timelines else 'that hold now'}")
        pace = pace_of(settings, SUPPOSED)
        transactions = stack.enter_context(closing(_transactions(settings, topics, pace)))
        transactions.open()
        yield KafkaOutlet(
            transactions,
            router,
            Transcoder(prefix, settings.avro.forms()),
            history.learn(tables)[0].publishing(table_ids or ()),
            Source(origins.host, origins.datacenter, NO_POSITION, 0, 0, origin=Origin.REPLAY),
            replace(bounds, tables=table_ids),
            pace=pace,
            clock=time.monotonic,
            milliseconds=lambda: time.time_ns() // 1_000_000,
        )


class LinesOutlet:
    """JSON lines, those of `tailrace dump --format changes`."""

    def __init__(self, out: TextIO, tables: Mapping[UUID, Table], bounds: Bounds) -> None:
        self._out = out
        self._tables = tables
        self._bounds = bounds
        self._printer = ChangesPrinter()

    def put(self, entry: Entry) -> int:
        """Write the changes of a mutation."""
        if not self._bounds.has_table(entry):
            return 0
        lines = list(
            self._printer.changes(entry.payload, entry.version, self._tables, entry.position, self._bounds.tables)
        )
        if self._bounds.timed:
            lines = [line for line in lines if self._bounds.has_time(_written(line))]
        with _named(self._out):
            for line in lines:
                self._out.write(json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")
        return len(lines)

    def finish(self) -> None:
        """Hand everything to the system."""
        with _named(self._out):
            self._out.flush()


@contextmanager
def lines_outlet(path: Path, origins: Origins, names: list[str] | None, bounds: Bounds) -> Iterator[LinesOutlet]:
    """A new file, or standard output for `-`. Raises SettingsError for a file that is there already."""
    table_ids, tables = chosen(origins.tables, names)
    by_id = {table.id: table for table in tables}
    with _opened(path) as out:
        yield LinesOutlet(out, by_id, replace(bounds, tables=table_ids))


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    if str(path) == "-":
        yield sys.stdout
        return
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise SettingsError(f"--to {path}: is there already; name a new file") from None
    except OSError as error:
        raise SettingsError(f"--to {path}: {error.strerror}") from None
    with file:
        yield file


@contextmanager
def _named(out: TextIO) -> Iterator[None]:
    """Errors of the output, not to be taken for a segment's; a reader that went away is none."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ServiceError(f"cannot write {out.name}: {error.strerror}") from error


def _written(line: Mapping[str, object]) -> int:
    written = line["written"]
    return written if isinstance(written, int) else 0
