"""Ranges of a table into its topic, by tasks: a transaction for each page, which says too how far the range is.

A range has a transactional id of its own. So a later attempt ends an earlier one, then reads what that had committed,
and goes on behind it (docs/contracts.md 4).
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from tailrace_common.closing import Closing
from tailrace_common.kafka import KafkaTransactions, PartitionReader, Sizes
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.avro import Encoder, SchemaIds
from tailrace_schemas.avro.frames import reframed
from tailrace_schemas.avro.schema import KeyChoice
from tailrace_schemas.change import Change
from tailrace_schemas.errors import CorruptError, DecodeError, FencedError, RefusedError, ServiceError, TailraceError
from tailrace_schemas.forms import PLAIN_FORMS, ValueForms
from tailrace_schemas.tokens import partition as partition_of
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.sinks.kafka.json_format import KafkaRecord
from tailrace_spark.snapshot.changes import ReadChanges
from tailrace_spark.snapshot.ranges import Split, TokenRange
from tailrace_spark.snapshot.reading import Page, PageStateError, RangeReader, UnreadableError
from tailrace_spark.snapshot.records import (
    ID_HEADER,
    RangeRecord,
    SnapshotRecord,
    decode_range,
    decode_snapshot,
    encode_range,
    key_of,
    parse_key,
)
from tailrace_spark.snapshot.session import TableReading, range_reader
from tailrace_spark.streams.assign import begin_task

log = logging.getLogger("tailrace_spark")


class SnapshotRecords(Closing):
    """What the topic says, read on at each `read`; one thread at a time. Nothing connects before the first one.

    With `only`, ranges of other snapshots are left out.
    """

    def __init__(self, kafka: Mapping[str, Scalar], prefix: str, *, only: str | None = None) -> None:
        self._reader = PartitionReader(kafka, internal_topic(prefix, Internal.SNAPSHOTS), 0)
        self._only = only
        self.snapshots: dict[str, SnapshotRecord] = {}
        self.ranges: dict[str, dict[int, RangeRecord]] = {}

    def read(self) -> None:
        """Read on to the end, when open transactions have ended. Raises ServiceError."""
        for record in self._reader.read_to_end():
            try:
                self._take(record.key or b"", record.value)
            except CorruptError as error:
                log.warning("%s: the record at offset %d is skipped: %s", self._reader, record.offset, error)

    def unfinished(self, table_id: UUID, within: str | None) -> SnapshotRecord | None:
        """The newest snapshot of a table and token range that has not ended."""
        running = [
            record
            for record in self.snapshots.values()
            if (record.table_id, record.within, record.ended) == (table_id, within, None)
        ]
        return max(running, key=lambda record: record.started, default=None)

    def ranges_of(self, snapshot_id: str) -> dict[int, RangeRecord]:
        """How far the ranges of a snapshot are, by their numbers; none of those that nothing is out of."""
        return self.ranges.get(snapshot_id, {})

    def close(self) -> None:
        """Leave the topic."""
        self._reader.close()

    def _take(self, key: bytes, value: bytes | None) -> None:
        snapshot_id, index = parse_key(key)
        if self._only not in (None, snapshot_id):
            return
        if index is None:
            if value is None:
                self.snapshots.pop(snapshot_id, None)
            else:
                self.snapshots[snapshot_id] = decode_snapshot(snapshot_id, value)
        elif value is None:
            self.ranges.get(snapshot_id, {}).pop(index, None)
        else:
            self.ranges.setdefault(snapshot_id, {})[index] = decode_range(value)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the changes of a snapshot go, and in which form. `timeout`: seconds of a transaction.

    `partitions` are those of the topic. `ids` name the schemas, and `largest` is the largest record, in bytes.
    """

    kafka: Mapping[str, Scalar] = field(repr=False)
    prefix: str
    topic: str
    partitions: int
    ids: SchemaIds
    key: KeyChoice = "partition"
    forms: ValueForms = PLAIN_FORMS
    largest: int = 16 << 20
    timeout: int = 10

    @property
    def progress(self) -> str:
        """The topic of how far snapshots are."""
        return internal_topic(self.prefix, Internal.SNAPSHOTS)

    def range_record(self, snapshot_id: str, index: int, record: RangeRecord) -> KafkaRecord:
        """How far a range is, for `progress`."""
        return KafkaRecord(self.progress, 0, key_of(snapshot_id, index), encode_range(record))

    def transactions(self, snapshot_id: str, suffix: str = "") -> KafkaTransactions:
        """Transactions of a snapshot, of the driver or of one range; not open yet."""
        return KafkaTransactions(
            self.kafka,
            f"{self.prefix}.snapshot.{snapshot_id}{suffix}",
            self.progress,
            clock=time.monotonic,
            timeout=self.timeout,
            sizes=Sizes(largest=self.largest),
            fenced=f"another command publishes snapshot {snapshot_id}: this one publishes no more",
        )


_OF_A_RANGE: Final = (UnreadableError, RefusedError, DecodeError)
"""Cassandra does not give it, or Kafka does not take one of its rows, as one that is too large; or a row is damaged."""
NumberedSplit = tuple[int, Split]
"""A range of a snapshot behind its number among them."""


@dataclass(frozen=True, slots=True)
class PublishedRange:
    """What a task made of a range: nothing is wrong, or an error's words, and whether another command is the newer."""

    index: int
    error: str | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class PublishTask:
    """What each task does, one of so many `tasks`; its ranges come with it."""

    reading: TableReading
    destination: Destination
    snapshot_id: str
    tasks: int

    def __call__(self, splits: Iterator[Sequence[NumberedSplit]]) -> Iterator[PublishedRange]:
        """The outcomes of a task's ranges; an error is the last one, but for what is a range's own fault."""
        begin_task()
        with self.publisher() as publisher:
            for index, split in itertools.chain.from_iterable(splits):
                try:
                    publisher.publish(index, split)
                except TailraceError as error:
                    yield PublishedRange(index, str(error), isinstance(error, FencedError))
                    if not isinstance(error, _OF_A_RANGE):
                        return
                else:
                    yield PublishedRange(index)

    @contextmanager
    def publisher(self) -> Iterator[RangePublisher]:
        """A publisher of one task. Raises SettingsError, ServiceError."""
        with (
            range_reader(self.reading, self.tasks) as reader,
            closing(RangePublisher(self.destination, self.snapshot_id, self.reading, reader)) as publisher,
        ):
            yield publisher


class RangePublisher:
    """Publishes ranges one after the other; of one task. It reads the topic of progress once, and then on."""

    def __init__(self, destination: Destination, snapshot_id: str, reading: TableReading, reader: RangeReader) -> None:
        self._destination = destination
        self._snapshot_id = snapshot_id
        self._encoder = Encoder(reading.table, destination.prefix, destination.key, destination.forms)
        self._headers = ((ID_HEADER, snapshot_id.encode()),)
        self._changes = ReadChanges(reading.table, reading.shape.selected, reading.datacenter)
        self._reader = reader
        self._progress = SnapshotRecords(destination.kafka, destination.prefix, only=snapshot_id)

    def close(self) -> None:
        """End the connection to the topic of progress."""
        self._progress.close()

    def publish(self, index: int, split: Split) -> None:
        """Publish what is not out yet of the range of a number. Raises ServiceError, FencedError, RefusedError."""
        with closing(self._destination.transactions(self._snapshot_id, f".{index}")) as transactions:
            transactions.open()
            self._progress.read()  # behind the fence: nobody else commits any more for this range
            progress = self._progress.ranges_of(self._snapshot_id).get(index)
            progress = progress or RangeRecord(0, 0, False, split.range.start)
            commit = partial(self._commit, transactions, index)
            while not progress.done:
                progress = self._publish(split, commit, progress)

    def _publish(self, split: Split, commit: Commit, progress: RangeRecord) -> RangeRecord:
        """Publish the rest of a range; how far it is then: not done, where no node takes the page state any more."""
        state, rest = progress.state, _rest(split, progress)
        changes = self._changes.after(progress.last_key)
        try:
            for page in self._reader.pages_of(rest, state):
                records = [self._record(change) for change in changes.changes(page.columns, page.requested_at)]
                progress = _advanced(progress, split, page, records, changes)
                commit(records, progress)
        except PageStateError as error:
            if state is None:
                raise ServiceError(f"Cassandra refuses a page state that it gave itself: {error}") from error
            # One of another release, say. Rows of one partition come twice.
            return RangeRecord(progress.changes, progress.octets, False, progress.complete_to)
        if not progress.done:  # its last page had no rows, or it had no page at all
            progress = RangeRecord(progress.changes, progress.octets, True, split.range.end)
            commit((), progress)
        return progress

    def _record(self, change: Change) -> KafkaRecord:
        """A change's record, in the partition of its token."""
        destination = self._destination
        key, value = self._encoder.key(change), self._encoder.value(change)
        if destination.ids.value != self._encoder.schema_id:
            key = None if key is None else reframed(key, destination.ids.key)
            value = reframed(value, destination.ids.value)
        partition = partition_of(change.token, destination.partitions)
        return KafkaRecord(destination.topic, partition, key, value, self._headers)

    def _commit(
        self, transactions: KafkaTransactions, index: int, records: Sequence[KafkaRecord], progress: RangeRecord
    ) -> None:
        """In one transaction: records, and how far the range is with them."""
        for record in records:
            transactions.send(record)
        transactions.send(self._destination.range_record(self._snapshot_id, index, progress))
        transactions.end()


Commit = Callable[[Sequence[KafkaRecord], RangeRecord], None]


def _rest(split: Split, progress: RangeRecord) -> Split:
    """What is to be read of a range: a page state says it in the whole one, a token in the rest of it."""
    if progress.state is not None or progress.complete_to <= split.range.start:
        return split
    return Split(TokenRange(progress.complete_to, split.range.end), split.replicas)


def _advanced(
    progress: RangeRecord, split: Split, page: Page, records: Sequence[KafkaRecord], changes: ReadChanges
) -> RangeRecord:
    """How far a range is with a page."""
    octets = progress.octets + sum([record.size for record in records])
    count = progress.changes + len(records)
    if page.next_page is None:
        return RangeRecord(count, octets, True, split.range.end)
    # Of the last partition rows may follow.
    complete_to = max(progress.complete_to, changes.last_token - 1)
    return RangeRecord(count, octets, False, complete_to, page.next_page, changes.last_key)
