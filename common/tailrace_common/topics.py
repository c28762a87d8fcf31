"""Readers of Tailrace's own topics: schemas, generations and progress; and why a table has none."""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cmp_to_key
from typing import Any, Final, Protocol, Self
from uuid import UUID

from tailrace_common.closing import Closing
from tailrace_common.kafka import DEFAULT_TIMEOUT_SECONDS, PartitionReader, Record, TopicReader
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.selection import listed
from tailrace_schemas.avro import SchemaEntry, entry_from_record
from tailrace_schemas.avro.decode import reader_of
from tailrace_schemas.avro.frames import message_schema_id
from tailrace_schemas.errors import CorruptError, ServiceError, UnsupportedError
from tailrace_schemas.formats import json_object
from tailrace_schemas.generation_records import Expired, GenerationLog, Ignored, PublishedGeneration
from tailrace_schemas.progress import Progress, decode_progress
from tailrace_schemas.streams import LEEWAY_MS, Mark
from tailrace_schemas.topics import Internal, internal_topic

WallClock = Callable[[], float]
_LOG: Final = logging.getLogger("tailrace.topics")
Statement = tuple[bool, int]
"""Whether it has a metadata epoch; that, else its write time in microseconds."""

_DDL = frozenset({"created", "altered", "dropped"})
_LISTED: Final = 3


class PartitionSource(Protocol):
    """A partition that is read on from where the last reading ended (tailrace_common.kafka.PartitionReader)."""

    def read_to_end(self) -> Iterator[Record]:
        """The records not read yet, up to the end that the partition has now. Raises ServiceError."""

    def close(self) -> None:
        """Let go of the connection."""


class GenerationReader(Closing):
    """Valid generations, as far as `refresh` has read; one thread at a time. `now` is wall time in seconds.

    The reader owns the source: `close` it, or use it in a `with`.
    """

    def __init__(self, source: PartitionSource, now: WallClock = time.time) -> None:
        self._source = source
        self._now = now
        self._log = GenerationLog()
        self._unread: UnsupportedError | None = None
        self.known_until: int | None = None
        """Milliseconds: for write times up to here the answer can never change (contracts.md 5)."""

    @classmethod
    def open(cls, config: Mapping[str, Scalar], topic: str) -> Self:
        """A reader of `<prefix>.generations`, by librdkafka's configuration. Nothing connects before `refresh`."""
        return cls(PartitionReader(config, topic, 0))

    def refresh(self) -> tuple[PublishedGeneration, ...]:
        """Read to the end of the topic; every valid generation that is not gone, ascending by timestamp.

        What is announced after this call begins is at least LEEWAY_MS ahead of it, as far as our clock and the
        broker's agree. Raises ServiceError when the end cannot be reached, UnsupportedError for another version: from
        then on always, as the source does not give that record again.
        """
        if self._unread is not None:
            raise self._unread
        began = self._now()
        for record in self._source.read_to_end():
            try:
                event = self._log.feed(record.offset, record.timestamp, record.key, record.value)
            except UnsupportedError as error:
                self._unread = error
                raise
            if isinstance(event, Ignored):
                _LOG.debug("generations: ignored the record at offset %d: %s", event.offset, event.reason)
            elif isinstance(event, Expired):
                _LOG.info("generations before %s were removed by retention: %s", _utc(event.oldest), event.gone)
            elif event is not None:
                _LOG.info("generation %s is in effect from %s on", event.uuid, _utc(event.timestamp))
        self.known_until = int(began * 1000) + LEEWAY_MS
        return self._log.published

    def refresh_some(self) -> tuple[PublishedGeneration, ...]:
        """As `refresh`, and at least one: raises ServiceError too while none is valid."""
        published = self.refresh()
        if not published:
            raise ServiceError("no valid generation is published yet: is an agent running?")
        return published

    @property
    def published(self) -> tuple[PublishedGeneration, ...]:
        """The valid generations read so far, ascending by timestamp."""
        return self._log.published

    @property
    def latest(self) -> PublishedGeneration | None:
        """The last generation read so far; None when there is none."""
        return self._log.latest

    def operating(self, written: int) -> tuple[PublishedGeneration, Mark | None]:
        """The generation that operated at a write time (microseconds), and a mark, if any.

        Raises ServiceError when no generation is known: hold what belongs to it, refresh, and ask again.
        """
        operating = self._log.operating(written, self.known_until)
        if operating is None:
            raise ServiceError("the generations topic has no valid generation yet: is an agent running?")
        return operating

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def _utc(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


class SchemaReader(Closing, Mapping[bytes, SchemaEntry]):
    """Every published schema by its id, the 8 bytes in a message's frame, or the 4 of a registry.

    A look-up of an unknown id reads the topic on to its end before it fails with KeyError. A schema is published before
    the first message that uses it (contracts.md 3). An id that is announced again gets the later offset in `announced`.
    Its other fields stay the same objects for as long as the reader lives. If `ordered`, of tables that had one name
    all of the earlier one counts as announced before the later one (`in_order`). A malformed record is skipped with
    one warning: messages that name its id stay undecodable, all others are read. One thread at a time; nothing connects
    before the first look-up. Reading raises ServiceError.
    """

    def __init__(
        self,
        config: Mapping[str, Scalar],
        prefix: str,
        *,
        ordered: bool = False,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        partition: PartitionSource | None = None,
        ddl: PartitionSource | None = None,
    ) -> None:
        """`config` is librdkafka's; `timeout` is how long, in seconds, a read may stand still.

        `partition` and `ddl` are read in place of `.schemas` and `.schema-changes`, and closed with this.
        """
        self._reader = partition or PartitionReader(
            config, internal_topic(prefix, Internal.SCHEMAS), 0, timeout=timeout
        )
        self._ddl = ddl or PartitionReader(config, internal_topic(prefix, Internal.SCHEMA_CHANGES), 0, timeout=timeout)
        self._ordered = ordered
        self._entries: dict[bytes, SchemaEntry] = {}
        self._offsets: dict[bytes, tuple[int, int]] = {}
        """Where each schema was announced first, and last."""
        self._statements: dict[UUID, Statement] = {}
        self.malformed = 0
        """Records that were skipped."""

    def refresh(self) -> None:
        """Read the topic on to the end it has now."""
        for record in self._reader.read_to_end():
            if record.key is None or record.value is None:
                continue
            existing = self._entries.get(record.key)
            if existing is not None:
                self._entries[record.key] = replace(existing, announced=record.offset)
                self._offsets[record.key] = self._offsets[record.key][0], record.offset
                continue
            try:
                entry = entry_from_record(record.key, record.value)
                self._entries[record.key] = replace(entry, announced=record.offset)
                self._offsets[record.key] = record.offset, record.offset
            except CorruptError as error:
                self.malformed += 1
                _LOG.warning(
                    "%s: the record at offset %d cannot be read as a schema (%s). It is skipped; messages that name "
                    "the schema id %s cannot be decoded until an agent announces that schema again",
                    *(self._reader, record.offset, error, record.key[:16].hex()),
                )

        if self._ordered:
            self._order()

    def _order(self) -> None:
        """Let no table that was dropped count as announced behind the one that has its name now."""
        names: dict[str, list[SchemaEntry]] = {}
        for entry in self._entries.values():
            names.setdefault(str(entry.table), []).append(entry)
        shared = [entries for entries in names.values() if len({entry.table.id for entry in entries}) > 1]
        if not shared:
            return
        # Statements are committed with the changes that follow from them, or before, and read up to their end. So
        # whoever has met a change knows of them.
        for table_id, statement in filter(None, (statement_of(record.value) for record in self._ddl.read_to_end())):
            self._statements[table_id] = max(statement, self._statements.get(table_id, statement))
        for entries in shared:
            announced = ((entry.table.id, self._offsets[entry.schema_id][0]) for entry in entries)
            ranges = places(announced, self._statements)
            for entry in entries:
                begin, end = ranges[entry.table.id]
                offset = max(begin, self._offsets[entry.schema_id][1])
                offset = offset if end is None else min(offset, end - 1)
                if entry.announced != offset:
                    self._entries[entry.schema_id] = replace(entry, announced=offset)

    def __getitem__(self, schema_id: bytes) -> SchemaEntry:
        entry = self._entries.get(schema_id)
        if entry is None:
            self.refresh()
            entry = self._entries[schema_id]
        return entry

    def decoded(self, message: bytes) -> tuple[SchemaEntry, dict[str, Any]]:
        """The schema and the record of a message. Raises DecodeError."""
        identity = message_schema_id(message)
        try:
            entry = self[identity]
        except KeyError:
            raise CorruptError(f"no schema {identity.hex()} was announced") from None
        return entry, reader_of(entry).record(message)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        """Leave the topics."""
        self._reader.close()
        self._ddl.close()


def statement_of(value: bytes | None) -> tuple[UUID, Statement] | None:
    """The table id and the statement of a record of `.schema-changes`; None for one that is about no table."""
    try:
        record = json_object(value or b"")
        if record["subject"] != "table" or record["kind"] not in _DDL:
            return None
        epoch = record["metadata"]
        return UUID(record["id"]), (False, int(record["written"])) if epoch is None else (True, int(epoch))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None  # anybody who may write to the topic can put anything there


def in_order(announced: Mapping[UUID, int], last: Mapping[UUID, Statement]) -> list[UUID]:
    """The ids of one name's tables, the earliest first: by the DDL in all hosts' logs, never by their ids.

    `announced`: where each was at first, `last`: the last statement on it. The table is the later one whose statement
    is later. Cassandra orders statements by the epoch of the cluster's metadata (6.0). Before that it goes by write
    time, as nodes merge `system_schema`. Unlike a position, both mean the same on every host. So an agent that lags
    tells of early statements, whenever it does. Without statements, as of tables older than the agents, the one
    announced first is the earlier one.
    """

    def compare(first: UUID, second: UUID) -> int:
        earlier, later = last.get(first), last.get(second)
        if earlier is not None and later is not None and earlier[0] == later[0] and earlier != later:
            return -1 if earlier < later else 1
        return announced[first] - announced[second]

    return sorted(announced, key=cmp_to_key(compare))


def places(
    announced: Iterable[tuple[UUID, int]], last: Mapping[UUID, Statement]
) -> Mapping[UUID, tuple[int, int | None]]:
    """From where on, and below which place, each table of one name counts as announced.

    So all announcements of a later table are behind all of an earlier one, also those that agents make which lag.
    `announced`: of each schema its table id, and the offset at which it was announced first.
    """
    firsts: dict[UUID, list[int]] = {}
    for table_id, offset in announced:
        firsts.setdefault(table_id, []).append(offset)
    order = in_order({table_id: min(offsets) for table_id, offsets in firsts.items()}, last)
    begins: list[int] = []
    for earlier, table_id in zip([None, *order], order, strict=False):
        begin = min(firsts[table_id])
        if earlier is not None and begin <= begins[-1]:
            # It was announced before it became the later one: then all that the earlier one had is before that.
            begin = max(begins[-1], *firsts[earlier]) + 1
        begins.append(begin)
    return dict(zip(order, zip(begins, [*begins[1:], None], strict=True), strict=True))


class ProgressReader(Closing):
    """The newest progress record of each host under a prefix; one thread at a time.

    A change and the progress that covers it are committed together, but become visible partition by partition. So read
    the progress first, then a table's topic, read_committed, up to the *high watermark* of its partitions after that.
    Wait for open transactions, as TopicReader.read_to_end does: the last stable offset is no end. Then every change of
    the host at or below the position has been read, except parked ones.
    """

    def __init__(self, config: Mapping[str, Scalar], prefix: str, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        """Connect. Raises ServiceError where the topic does not exist, or Kafka does not answer."""
        topic = internal_topic(prefix, Internal.PROGRESS)
        self._reader = TopicReader(config, topic, beginning=True, timeout=timeout)
        self._newest: dict[bytes, Progress] = {}

    def read(self) -> tuple[Progress, ...]:
        """The hosts' progress up to now, by cluster and host. Raises ServiceError.

        A record that this version cannot read leaves its host out: what it covers is not known.
        """
        for _, record in self._reader.read_to_end():
            if record.key is None:
                continue
            self._newest.pop(record.key, None)
            if record.value is not None:
                try:
                    self._newest[record.key] = decode_progress(record.key, record.value)
                except CorruptError:
                    continue
        return tuple(sorted(self._newest.values(), key=lambda progress: (progress.cluster, progress.host)))

    def close(self) -> None:
        """End the connection."""
        self._reader.close()


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Why, and what to do."""

    reason: str
    action: str


def why_unpublished(pattern: str, tables: Mapping[str, bool]) -> Unpublished:
    """Of a table, or of all that fit a pattern with * and ?; `tables` are Cassandra's by name, and whether with cdc."""
    fitting = sorted(name for name in tables if fnmatchcase(name, pattern))
    with_cdc = [name for name in fitting if tables[name]]
    if with_cdc:
        return Unpublished(
            f"no agent has published anything of {listed(with_cdc, _LISTED)} yet",
            "start an agent beside each node; `tailrace check` there says whether tables.include selects the table",
        )
    if fitting:
        several = len(fitting) > 1
        statements = "; ".join(f"ALTER TABLE {name} WITH cdc = true" for name in fitting[:_LISTED])
        return Unpublished(f"{listed(fitting, _LISTED)} {'have' if several else 'has'} no cdc", statements)
    close = difflib.get_close_matches(pattern, tables, n=1)
    action = f"did you mean {close[0]}?" if close else "make it WITH cdc = true, or correct the name"
    return Unpublished(f"there is no such table: {pattern}", action)
