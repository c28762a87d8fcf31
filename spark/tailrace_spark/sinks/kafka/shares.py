"""The Kafka sink on executors: a transaction for each share of a batch, by a transactional id of its own.

A writer opens the producer of its partition and closes it. The next batch's share may be another worker's, and every
worker would keep an idle producer for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from tailrace_schemas.errors import FencedError, RefusedError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, MicroBatch, Piece
from tailrace_spark.sinks.changelog.sink import LogShares, OpenedOutlet, Opener, ShareImaging, emit
from tailrace_spark.sinks.kafka.json_format import KafkaRecord
from tailrace_spark.sinks.kafka.outlet import KafkaBatch, KafkaOutlet, OwnBatch
from tailrace_spark.sinks.kafka.progress import Progress, plan_record, progress_record
from tailrace_spark.sinks.protocol import HereOnlyError, Needed
from tailrace_spark.sinks.worker_cache import WorkerCache

_FENCED_AT_ONCE: Final = 8


class SupersededError(Exception):
    """Another attempt at the partition has begun, and this one may write no more; the other one's outcome counts.

    It is raised through Spark, which then waits for the other attempt or makes one more.
    """


@dataclass(frozen=True, slots=True)
class KafkaWriter:
    """Writes a share in one transaction, with how far it is. `plan` names the plan that it is of.

    `next_offsets` are what the topic of progress says up to its offset `since`: the rest is read by the writer.
    """

    opener: Opener[WorkerKafkaOutlet] = field(repr=False)
    plan: str
    since: int
    next_offsets: Mapping[KafkaPartition, int]
    imaging: ShareImaging | None = None

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        with _OUTLETS.borrowed(self.opener) as opened:
            return self._written(opened, share, pieces)

    def _written(
        self, opened: OpenedOutlet[WorkerKafkaOutlet], share: KafkaPartition, pieces: Iterable[Piece]
    ) -> CommitMessage:
        progress = opened.outlet.progress_of(self, share)
        try:
            progress.read_within(self.plan)
            batch = opened.outlet.begin_share(share, progress, self.plan)
            imaged = pieces if self.imaging is None else self.imaging.imaged(share, pieces)
            return CommitMessage(share, emit(batch, imaged, opened.forms))
        except RefusedError as error:
            # The driver remembers what Kafka refuses, and sets it aside.
            raise HereOnlyError(str(error)) from error
        except FencedError:
            progress.read_within(self.plan)
            raise SupersededError("{}, partition {}: another attempt has begun".format(*share)) from None
        finally:
            progress.close()


class WorkerKafkaOutlet(KafkaOutlet):
    """A worker process's outlet: tables' topics, schemas and forms; the producer is a share's."""

    def progress_of(self, writer: KafkaWriter, partition: KafkaPartition) -> Progress:
        """What is known of a partition when its share begins."""
        known_next = {partition: writer.next_offsets[partition]} if partition in writer.next_offsets else {}
        return Progress(self.config, self.target.progress, self.target.name, writer.since, known_next)

    def begin_share(self, partition: KafkaPartition, progress: Progress, plan: str) -> KafkaBatch:
        """A transaction of the partition's id; whoever used it before may write no more, and `progress` has all."""
        self.renew()
        target = replace(self.target, source=partition)
        producer = self.open_producer(target)
        try:
            progress.read_within(plan)
        except BaseException:
            producer.close()
            raise
        return OwnBatch(self, producer, target, progress.next)


@dataclass(frozen=True, slots=True)
class KafkaShares(LogShares):
    """As LogShares; raises FencedError where another driver has begun. What executors have written, it leaves out."""

    outlet: KafkaOutlet
    opener: Opener[WorkerKafkaOutlet] = field(repr=False)

    def writer(self, batch: MicroBatch, needed: Needed, imaging: ShareImaging | None) -> KafkaWriter:
        """As LogShares says."""
        del needed  # topics are made when they are first written
        plan, since, next_offsets = self._plan(batch.ends)
        some = {partition: offset for partition, offset in next_offsets.items() if partition in batch.ends}
        return KafkaWriter(self.opener, plan, since, some, imaging)

    def _plan(self, partitions: Iterable[KafkaPartition]) -> tuple[str, int, Mapping[KafkaPartition, int]]:
        """Make a plan for shares of these partitions the newest: its name, and how far all are at which offset."""
        self.outlet.renew()
        producer, progress = self.outlet.producer(), self.outlet.progress
        try:
            progress.read()
            since, known_next = progress.offset, dict(progress.next)
            plan = uuid4().hex
            producer.send(plan_record(self.outlet.target.progress, self.outlet.target.name, plan))
            for partition in sorted(set(partitions) - progress.by_tasks):
                producer.send(self._progress_record(partition, by_tasks=True))
            producer.end()
        except BaseException:
            self.outlet.abandon()
            raise
        return plan, since, known_next

    def fence(self) -> None:
        """As LogShares says: the transactions of all shares end, and no later one begins any."""
        producer, progress = self.outlet.producer(), self.outlet.progress
        try:
            progress.read()
            if not progress.by_tasks:
                return
            producer.send(plan_record(self.outlet.target.progress, self.outlet.target.name, uuid4().hex))
            producer.end()
            with ThreadPoolExecutor(_FENCED_AT_ONCE) as threads:
                list(threads.map(self._fence, sorted(progress.by_tasks)))
            progress.read()
            for partition in sorted(progress.by_tasks):
                producer.send(self._progress_record(partition, by_tasks=False))
            producer.end()
        except BaseException:
            self.outlet.abandon()
            raise
        progress.by_tasks.clear()

    def _fence(self, partition: KafkaPartition) -> None:
        self.outlet.open_producer(replace(self.outlet.target, source=partition)).close()

    def _progress_record(self, partition: KafkaPartition, *, by_tasks: bool) -> KafkaRecord:
        target, next_offset = self.outlet.target, self.outlet.progress.next.get(partition, 0)
        return progress_record(target.progress, target.name, partition, next_offset, by_tasks=by_tasks)


_OUTLETS: Final = WorkerCache[Opener[WorkerKafkaOutlet], OpenedOutlet[WorkerKafkaOutlet]](OpenedOutlet)
