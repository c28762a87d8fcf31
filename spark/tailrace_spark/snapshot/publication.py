"""A snapshot for Kafka's readers, from the driver: planned once, published by tasks, gone on with after a crash."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final
from uuid import uuid4

from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.kafka.transactions import MARK
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.avro import Encoder, SchemaEntry, SchemaIds, own_ids, schema_records
from tailrace_schemas.avro.subjects import subject_of
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal, TopicPlan, internal_plan, internal_topic, table_plan, table_topic
from tailrace_spark.sinks.kafka.json_format import KafkaRecord
from tailrace_spark.snapshot.publishing import Destination, NumberedSplit, PublishedRange, PublishTask, SnapshotRecords
from tailrace_spark.snapshot.ranges import Estimate, deal, estimate, sampled
from tailrace_spark.snapshot.records import (
    ID_HEADER,
    MARK_HEADER,
    SnapshotRecord,
    encode_snapshot,
    range_key,
    snapshot_key,
)
from tailrace_spark.snapshot.session import survey, take_samples
from tailrace_spark.snapshot.settings import SnapshotSettings

log = logging.getLogger("tailrace_spark")
_AGAIN: Final = "run the same command again: it goes on where this one stopped"

Run = Callable[[Sequence[tuple[NumberedSplit, ...]], PublishTask], Sequence[PublishedRange]]
"""Runs tasks on Spark's executors, and gives their outcomes."""


class Announcer:
    """Makes topics and announces definitions, as the settings say. `topics.create` = false leaves that to others."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._kafka = settings.kafka.reveal()
        self._topics = TopicMaker(self._kafka)

    def prepare(self) -> None:
        """Make the topics that are not a table's. Raises SettingsError, ServiceError."""
        for internal in (Internal.SCHEMAS, Internal.SNAPSHOTS):
            self._ensured(internal_plan(self._settings.topics, internal))

    def announce(self, table: Table) -> tuple[Destination, list[KafkaRecord]]:
        """Where a table's changes go; the topic is there then. The records announce what is not announced yet.

        Raises SettingsError where `tables` leaves the table out, ServiceError.
        """
        settings = self._settings
        self._require_selected(table)
        encoder = Encoder(table, settings.topics.prefix, settings.topics.key, settings.avro.forms())
        with SchemaReader(self._kafka, settings.topics.prefix) as schemas:
            schemas.refresh()
            entries = dict(schemas)
        topic = _topic_of(settings.topics.prefix, table, entries.values())
        partitions = self._ensured(table_plan(settings.topics, topic))
        ids = self._ids(encoder, topic)
        destination = Destination(
            self._kafka,
            settings.topics.prefix,
            topic,
            partitions,
            ids,
            settings.topics.key,
            settings.avro.forms(),
            settings.topics.max_message_bytes,
            settings.agent.transaction_timeout_seconds,
        )
        name = internal_topic(settings.topics.prefix, Internal.SCHEMAS)
        value, key = schema_records(encoder, topic, ids)
        records = [KafkaRecord(name, 0, *key)] if key[0] not in entries else []
        # The definition was read just now: it is to be the table's newest (contracts.md 3).
        if _newest(table, entries.values()) != value[0]:
            records.append(KafkaRecord(name, 0, *value))
        return destination, records

    def _ensured(self, plan: TopicPlan) -> int:
        """How many partitions a topic has, which is made where it is missing."""
        return self._topics.ensure_planned(plan, create=self._settings.topics.create)

    def _require_selected(self, table: Table) -> None:
        tables, name = self._settings.tables, str(table)
        if not _matches(tables.include, name) or _matches(tables.exclude, name):
            raise SettingsError(f"tables.include and tables.exclude leave {name} out: nothing of it is published")

    def _ids(self, encoder: Encoder, topic: str) -> SchemaIds:
        schemas = self._settings.schemas
        if schemas.store == "topic":
            return own_ids(encoder)
        try:
            from tailrace_common.kafka.schema_registry import SchemaRegistry
        except ImportError as cause:
            raise SettingsError(
                f"schemas.store = \"registry\" needs {cause.name}: pip install 'tailrace[registry]'"
            ) from None
        registry = SchemaRegistry(
            schemas.registry.reveal(),
            register=schemas.register_schemas,
            section="schemas.registry",
            setting="schemas.register_schemas",
        )
        with closing(registry):
            value = registry.id_of(
                subject_of(schemas.subjects, topic, "value", encoder.schema_text), encoder.schema_text
            )
            key = registry.id_of(
                subject_of(schemas.subjects, topic, "key", encoder.key_schema_text), encoder.key_schema_text
            )
        return SchemaIds(value.to_bytes(4, "big"), key.to_bytes(4, "big"))


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _topic_of(prefix: str, table: Table, entries: Iterable[SchemaEntry]) -> str:
    """The topic that `.schemas` has for the table's name, else one that collides with none."""
    names = {entry.topic: str(entry.table) for entry in entries}
    for topic, name in names.items():
        if name == str(table):
            return topic
    return table_topic(prefix, table.keyspace, table.name, table.id, names)


def _newest(table: Table, entries: Iterable[SchemaEntry]) -> bytes | None:
    """The id of the table's newest definition."""
    values = [entry for entry in entries if entry.part == "value" and entry.table.id == table.id]
    newest = max(values, key=lambda entry: entry.announced, default=None)
    return None if newest is None else newest.schema_id


def estimated(settings: SnapshotSettings) -> Estimate:
    """What reading the table would be; nothing but a few samples is read. Raises as `survey`."""
    survey_now = survey(settings)
    splits = survey_now.splits()
    samples = take_samples(settings, survey_now.table, sampled(splits))
    return estimate(splits, len(deal(splits, settings.limits)), samples, settings.rows_per_second)


@dataclass(frozen=True, slots=True)
class Totals:
    """How far a snapshot is; `octets` are those of keys and values in the topic."""

    ranges: int
    done: int
    changes: int
    octets: int


class Publication:
    """One snapshot of a table into its topic. Raises SettingsError, ServiceError, FencedError from its methods."""

    def __init__(self, announcer: Announcer, settings: SnapshotSettings) -> None:
        self._settings = settings
        self._survey = survey(settings)
        announcer.prepare()
        self._destination, self._announcements = announcer.announce(self._survey.table)
        self._record: SnapshotRecord | None = None
        self.resumed = False
        """Whether an earlier command began it."""

    @property
    def record(self) -> SnapshotRecord:
        """The snapshot's own record."""
        if self._record is None:
            raise ValueError("begin the snapshot first")
        return self._record

    @property
    def destination(self) -> Destination:
        """Where it goes."""
        return self._destination

    def begin(self, *, new: bool) -> None:
        """Announce the definition, and go on with the table's unfinished snapshot, or begin one; `new`: begin one."""
        with closing(self._records()) as records:
            records.read()
            earlier = records.unfinished(self._survey.table.id, self._settings.token_range)
        self.resumed = earlier is not None and not new
        if earlier is not None and new:
            self._end(earlier, cancelled=True)
        record = earlier if earlier is not None and not new else self._planned()
        with closing(self._destination.transactions(record.id)) as transactions:
            transactions.open()
            if self._announcements:  # readers have the definition before the first row
                for announcement in self._announcements:
                    transactions.send(announcement)
                transactions.end()
            if not self.resumed:
                for mark in self._marks(record, "first"):
                    transactions.send(mark)
                transactions.send(self._snapshot_record(record))
                transactions.end()
        self._record = record

    def publish(self, run: Run) -> Totals:
        """Publish all ranges that are not out yet, then end the snapshot."""
        totals, unpublished = self.totals()
        tasks = self._tasks(unpublished)
        if tasks:
            task = PublishTask(self._survey.reading, self._destination, self.record.id, len(tasks))
            outcomes = run(tasks, task)
            for outcome in sorted(outcomes, key=lambda outcome: (not outcome.fenced, outcome.index)):
                if outcome.fenced:
                    raise FencedError(outcome.error or "")
                if outcome.error is not None:
                    raise ServiceError(f"range {outcome.index} of {self.record.table}: {outcome.error}. {_AGAIN}")
            totals, unpublished = self.totals()
        if unpublished:
            raise ServiceError(f"{len(unpublished)} ranges of {self.record.table} are not published yet: {_AGAIN}")
        self._end(self.record)
        return totals

    def totals(self) -> tuple[Totals, list[int]]:
        """How far it is, and the numbers of the ranges that are not done."""
        with closing(self._records()) as records:
            records.read()
            return totals_of(self.record, records), _left(self.record, records)

    def watch(self) -> SnapshotRecords:
        """A reader of how far it is, for `totals_of`."""
        return self._records()

    def _records(self) -> SnapshotRecords:
        only = None if self._record is None else self._record.id
        return SnapshotRecords(self._destination.kafka, self._destination.prefix, only=only)

    def _planned(self) -> SnapshotRecord:
        ranges = tuple([split.range for split in self._survey.splits()])
        table, topic = self._survey.table, self._destination.topic
        within, now = self._settings.token_range, time.time_ns() // 1_000_000
        return SnapshotRecord(uuid4().hex, str(table), table.id, topic, within, ranges, now)

    def _tasks(self, unpublished: Sequence[int]) -> list[tuple[NumberedSplit, ...]]:
        ranges = self.record.ranges
        numbers = {ranges[index]: index for index in unpublished}
        dealt = deal([self._survey.split_of(ranges[index]) for index in unpublished], self._settings.limits)
        return [tuple([NumberedSplit(numbers[split.range], split) for split in splits]) for splits in dealt]

    def _end(self, record: SnapshotRecord, *, cancelled: bool = False) -> None:
        """In one transaction: the last marks, that it has ended, and tombstones for its ranges' records."""
        ended = replace(record, ended=time.time_ns() // 1_000_000, cancelled=cancelled)
        with closing(self._destination.transactions(record.id)) as producer:
            producer.open()
            for mark in self._marks(record, "cancelled" if cancelled else "last"):
                producer.send(mark)
            producer.send(self._snapshot_record(ended))
            for index in range(len(record.ranges)):
                producer.send_tombstone(self._destination.progress, 0, range_key(record.id, index))
            producer.end()

    def _marks(self, record: SnapshotRecord, kind: str) -> list[KafkaRecord]:
        headers = ((ID_HEADER, record.id.encode()), (MARK_HEADER, kind.encode()))
        partitions = range(self._destination.partitions)
        return [KafkaRecord(record.topic, partition, MARK, None, headers) for partition in partitions]

    def _snapshot_record(self, record: SnapshotRecord) -> KafkaRecord:
        return KafkaRecord(self._destination.progress, 0, snapshot_key(record.id), encode_snapshot(record))


def totals_of(record: SnapshotRecord, records: SnapshotRecords) -> Totals:
    """How far a snapshot is, by what was read of its ranges."""
    ranges = records.ranges_of(record.id).values()
    return Totals(
        len(record.ranges),
        sum([entry.done for entry in ranges]),
        sum([entry.changes for entry in ranges]),
        sum([entry.octets for entry in ranges]),
    )


def _left(record: SnapshotRecord, records: SnapshotRecords) -> list[int]:
    done = {index for index, entry in records.ranges_of(record.id).items() if entry.done}
    return [index for index in range(len(record.ranges)) if index not in done]
