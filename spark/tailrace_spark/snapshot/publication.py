"""A snapshot for Kafka's readers, from the driver: planned once, published by tasks, gone on with after a crash."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final
from uuid import uuid4

from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.kafka.transactions import MARK
from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_schemas.avro import Encoder, SchemaEntry, SchemaIds, announced_topics, own_ids, schema_records
from tailrace_schemas.avro.names import Part, subject_of
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal, chosen_topic, internal_topic
from tailrace_spark.sinks.kafka.json_format import KafkaRecord
from tailrace_spark.snapshot.publishing import (
    Destination,
    NumberedSplit,
    PublishedRange,
    PublishTask,
    SnapshotRecords,
)
from tailrace_spark.snapshot.ranges import Estimate, deal, estimate, sampled
from tailrace_spark.snapshot.records import (
    ID_HEADER,
    MARK_HEADER,
    SnapshotRecord,
    encode_snapshot,
    key_of,
)
from tailrace_spark.snapshot.session import survey, take_samples
from tailrace_spark.snapshot.settings import SnapshotSettings

log = logging.getLogger("tailrace_spark")
_AGAIN: Final = "run the same command again: it goes on where this one stopped"

Run = Callable[[Sequence[tuple[NumberedSplit, ...]], PublishTask], Sequence[PublishedRange]]
"""Runs tasks on Spark's executors, and gives their outcomes."""


def prepared(settings: Settings, table: Table) -> tuple[Destination, list[KafkaRecord]]:
    """Where a table's changes go; its topic is there then. The records announce what is not announced yet.

    Topics are made as the settings say; `topics.create` = false leaves that to others. Raises SettingsError where
    `tables` leaves the table out, ServiceError.
    """
    if not settings.tables.selection.wants(table):
        raise SettingsError(f"tables.include and tables.exclude leave {table} out: nothing of it is published")
    kafka, topics, forms = settings.kafka.reveal(), settings.topics, settings.avro.forms()
    maker = TopicMaker(kafka)
    for internal in (Internal.SCHEMAS, Internal.SNAPSHOTS):
        maker.ensure_planned(topics.internal_plan(internal), create=topics.create)
    with SchemaReader(kafka, topics.prefix) as schemas:
        schemas.refresh()
        entries = dict(schemas)
    topic = chosen_topic(topics.prefix, table, announced_topics(entries.values()))
    partitions = maker.ensure_planned(topics.table_plan(topic), create=topics.create)
    encoder = Encoder(table, topics.prefix, topics.key, forms)
    ids = _ids(settings, encoder, topic, entries)
    timeout = settings.agent.transaction_timeout_seconds
    destination = Destination(
        kafka, topics.prefix, topic, partitions, ids, topics.key, forms, topics.max_message_bytes, timeout
    )
    value, key = schema_records(encoder, topic, ids)
    records = [key] if key[0] not in entries else []
    # The definition was read just now: it is to be the table's newest (contracts.md 3).
    values = [entry for entry in entries.values() if entry.part == "value" and entry.table.id == table.id]
    newest = max(values, key=attrgetter("announced"), default=None)
    if newest is None or newest.schema_id != value[0]:
        records.append(value)
    name = internal_topic(topics.prefix, Internal.SCHEMAS)
    return destination, [KafkaRecord(name, 0, *record) for record in records]


def _ids(settings: Settings, encoder: Encoder, topic: str, announced: Mapping[bytes, SchemaEntry]) -> SchemaIds:
    schemas = settings.schemas
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

    def id_of(part: Part, text: str) -> bytes:
        return registry.own_id(subject_of(schemas.subjects, topic, part, text), text, announced)

    with closing(registry):
        return SchemaIds(id_of("value", encoder.schema_text), id_of("key", encoder.key_schema_text))


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

    def __init__(self, settings: Settings, reading: SnapshotSettings, *, new: bool = False) -> None:
        """Announce the definition, and go on with the table's unfinished snapshot, or begin one; `new`: begin one."""
        self._survey = survey(reading)
        self.destination, announcements = prepared(settings, self._survey.table)
        with closing(self.records(None)) as records:
            records.read()
            earlier = records.unfinished(self._survey.table.id, reading.token_range)
        if earlier is not None and new:
            self._end(earlier, cancelled=True)
            earlier = None
        self.resumed = earlier is not None
        """Whether an earlier command began it."""
        self.record = earlier or self._planned()
        first = [] if self.resumed else [*self._marks(self.record, "first"), self._snapshot_record(self.record)]
        self._commit(self.record.id, announcements, first)  # readers have the definition before the first row

    def publish(self, run: Run) -> Totals:
        """Publish all ranges that are not out yet, then end the snapshot."""
        totals, unpublished = self.totals()
        tasks = self._tasks(unpublished)
        if tasks:
            task = PublishTask(self._survey.reading, self.destination, self.record.id, len(tasks))
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
        with closing(self.records(self.record.id)) as records:
            records.read()
            done = {index for index, entry in records.ranges_of(self.record.id).items() if entry.done}
            numbers = range(len(self.record.ranges))
            return totals_of(self.record, records), [index for index in numbers if index not in done]

    def records(self, only: str | None) -> SnapshotRecords:
        """A reader of how far snapshots are, for `totals_of`, or how far one is."""
        return SnapshotRecords(self.destination.kafka, self.destination.prefix, only=only)

    def _planned(self) -> SnapshotRecord:
        ranges = tuple([split.range for split in self._survey.splits()])
        table, topic = self._survey.table, self.destination.topic
        within, now = self._survey.reading.settings.token_range, time.time_ns() // 1_000_000
        return SnapshotRecord(uuid4().hex, str(table), table.id, topic, within, ranges, now)

    def _tasks(self, unpublished: Sequence[int]) -> list[tuple[NumberedSplit, ...]]:
        ranges = self.record.ranges
        numbers = {ranges[index]: index for index in unpublished}
        splits = [self._survey.split_of(ranges[index]) for index in unpublished]
        dealt = deal(splits, self._survey.reading.settings.limits)
        return [tuple([(numbers[split.range], split) for split in task]) for task in dealt]

    def _end(self, record: SnapshotRecord, *, cancelled: bool = False) -> None:
        """In one transaction: the last marks, that it has ended, and tombstones for its ranges' records."""
        ended = replace(record, ended=time.time_ns() // 1_000_000, cancelled=cancelled)
        keys = [key_of(record.id, index) for index in range(len(record.ranges))]
        tombstones = [KafkaRecord(self.destination.progress, 0, key, None) for key in keys]
        marks = self._marks(record, "cancelled" if cancelled else "last")
        self._commit(record.id, [*marks, self._snapshot_record(ended), *tombstones])

    def _commit(self, snapshot_id: str, *transactions: Sequence[KafkaRecord]) -> None:
        """Send records, a transaction each; those of another command for this snapshot end."""
        with closing(self.destination.transactions(snapshot_id)) as producer:
            producer.open()
            for records in filter(None, transactions):
                for record in records:
                    producer.send(record)
                producer.end()

    def _marks(self, record: SnapshotRecord, kind: str) -> list[KafkaRecord]:
        headers = ((ID_HEADER, record.id.encode()), (MARK_HEADER, kind.encode()))
        partitions = range(self.destination.partitions)
        return [KafkaRecord(record.topic, partition, MARK, None, headers) for partition in partitions]

    def _snapshot_record(self, record: SnapshotRecord) -> KafkaRecord:
        return KafkaRecord(self.destination.progress, 0, key_of(record.id), encode_snapshot(record))


def totals_of(record: SnapshotRecord, records: SnapshotRecords) -> Totals:
    """How far a snapshot is, by what was read of its ranges."""
    ranges = records.ranges_of(record.id).values()
    return Totals(
        len(record.ranges),
        sum([entry.done for entry in ranges]),
        sum([entry.changes for entry in ranges]),
        sum([entry.octets for entry in ranges]),
    )
