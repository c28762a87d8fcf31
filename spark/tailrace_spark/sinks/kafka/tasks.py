"""The Kafka sink's tasks: a transaction for each Kafka partition of a batch, by a transactional id of its own.

A task opens the producer of its partition and closes it. The next batch's task may run in another worker, and every
worker would keep an idle producer for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from tailrace_schemas.errors import FencedError, RefusedError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.sinks.changelog.log_task import ImagingPlanner, OpenedOutlet, Opener, PartitionImaging
from tailrace_spark.sinks.changelog.sink import ChangeLogSink, Imaging
from tailrace_spark.sinks.kafka.outlet import KafkaBatch, KafkaOutlet, OwnBatch
from tailrace_spark.sinks.kafka.progress import Progress, plan_record, progress_record
from tailrace_spark.sinks.kafka.record import KafkaRecord
from tailrace_spark.sinks.protocol import Capabilities, DriverOnlyError
from tailrace_spark.sinks.without_truncations import without_truncations
from tailrace_spark.sinks.worker_cache import WorkerCache

_FENCED_AT_ONCE: Final = 8


class SupersededError(Exception):
    """Another attempt at the partition has begun, and this one may write no more; the other one's outcome counts.

    It is raised through Spark, which then waits for the other attempt or makes one more.
    """


@dataclass(frozen=True, slots=True)
class KafkaTask:
    """Writes a Kafka partition's records in one transaction, with how far it is. `plan` names the plan that it is of.

    `next_offsets` are what the topic of progress says up to its offset `since`: the rest is read by the task.
    """

    opener: Opener[KafkaTaskOutlet] = field(repr=False)
    plan: str
    since: int
    next_offsets: Mapping[KafkaPartition, int]
    imaging: PartitionImaging | None = None

    def write(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> PartitionResult:
        """As PartitionTask says."""
        with _OUTLETS.borrowed(self.opener) as opened:
            return self._written(opened, partition, pieces)

    def _written(
        self, opened: OpenedOutlet[KafkaTaskOutlet], partition: KafkaPartition, pieces: Iterable[Piece]
    ) -> PartitionResult:
        progress = opened.outlet.progress_of(self, partition)
        try:
            progress.read_within(self.plan)
            batch = opened.outlet.begin_partition(partition, progress, self.plan)
            return PartitionResult(partition, opened.sink.into(batch, self._imaged(partition, pieces)))
        except RefusedError as error:
            # The driver remembers what Kafka refuses, and sets it aside.
            raise DriverOnlyError(str(error)) from error
        except FencedError:
            progress.read_within(self.plan)
            raise SupersededError("{}, partition {}: another attempt has begun".format(*partition)) from None
        finally:
            progress.close()

    def _imaged(self, partition: KafkaPartition, pieces: Iterable[Piece]) -> Iterable[Piece]:
        """A truncation has images of rows of all partitions: it is the driver's."""
        return pieces if self.imaging is None else self.imaging.imaged(partition, without_truncations(pieces))


class KafkaTaskOutlet(KafkaOutlet):
    """A worker process's outlet: tables' topics, schemas and forms; the producer is a task's."""

    def progress_of(self, task: KafkaTask, partition: KafkaPartition) -> Progress:
        """What is known of a partition when its task begins."""
        known_next = {partition: task.next_offsets[partition]} if partition in task.next_offsets else {}
        return Progress(self.config, self.target.progress, self.target.name, task.since, known_next)

    def begin_partition(self, partition: KafkaPartition, progress: Progress, plan: str) -> KafkaBatch:
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


class PlanningKafkaOutlet(KafkaOutlet):
    """As KafkaOutlet, and the driver's half of tasks. Raises FencedError where another driver has begun."""

    def plan(self, partitions: Iterable[KafkaPartition]) -> tuple[str, int, Mapping[KafkaPartition, int]]:
        """Make a plan for tasks of these partitions the newest: its name, and how far all are at which offset."""
        self.renew()
        producer, progress = self.producer(), self.progress
        try:
            progress.read()
            since, known_next = progress.offset, dict(progress.next)
            plan = uuid4().hex
            producer.send(plan_record(self.target.progress, self.target.name, plan))
            for partition in sorted(set(partitions) - progress.by_tasks):
                producer.send(self._progress_record(partition, by_tasks=True))
            producer.end()
        except BaseException:
            self.abandon()
            raise
        return plan, since, known_next

    def fence(self) -> None:
        """End the transactions of all tasks, and let no later one begin any."""
        producer, progress = self.producer(), self.progress
        try:
            progress.read()
            if not progress.by_tasks:
                return
            producer.send(plan_record(self.target.progress, self.target.name, uuid4().hex))
            producer.end()
            with ThreadPoolExecutor(_FENCED_AT_ONCE) as threads:
                list(threads.map(self._fence, sorted(progress.by_tasks)))
            progress.read()
            for partition in sorted(progress.by_tasks):
                producer.send(self._progress_record(partition, by_tasks=False))
            producer.end()
        except BaseException:
            self.abandon()
            raise
        progress.by_tasks.clear()

    def _fence(self, partition: KafkaPartition) -> None:
        self.open_producer(replace(self.target, source=partition)).close()

    def _progress_record(self, partition: KafkaPartition, *, by_tasks: bool) -> KafkaRecord:
        next_offset = self.progress.next.get(partition, 0)
        return progress_record(self.target.progress, self.target.name, partition, next_offset, by_tasks=by_tasks)


class KafkaLogSink(ChangeLogSink):
    """As ChangeLogSink; with an `opener`, and a `planner` where there are images, a TaskSink."""

    def __init__(
        self,
        outlet: PlanningKafkaOutlet,
        imaging: Imaging | None = None,
        opener: Opener[KafkaTaskOutlet] | None = None,
        planner: ImagingPlanner | None = None,
        *,
        transactions: bool = False,
    ) -> None:
        super().__init__(outlet, imaging, transactions=transactions)
        self._planning = outlet
        self._planner = planner
        self._opener = opener if imaging is None or planner is not None else None

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, tasks=None if self._opener is None else self)

    def fence(self, stream: str) -> None:
        """As TaskSink says; what tasks have written, the driver leaves out."""
        self._planning.fence()
        if self._planner is not None:
            self._planner.fence(stream)

    def plan(self, batch: TaskBatch, definitions: Sequence[tuple[int, Table]]) -> KafkaTask:
        """As TaskSink says."""
        if self._opener is None:
            raise ValueError("a sink without an opener has no tasks: capabilities.tasks says so")
        imaging = None if self._planner is None else self._planner.plan(batch, definitions)
        plan, since, next_offsets = self._planning.plan(batch.ends)
        some = {partition: offset for partition, offset in next_offsets.items() if partition in batch.ends}
        return KafkaTask(self._opener, plan, since, some, imaging)

    def commit(self, batch: TaskBatch, results: Sequence[PartitionResult]) -> Summary:
        """As TaskSink says: each task has committed its own."""
        del batch
        if self._planner is not None:
            self._planner.commit()
        return sum((result.summary for result in results), Summary())


_OUTLETS: Final = WorkerCache[Opener[KafkaTaskOutlet], OpenedOutlet[KafkaTaskOutlet]](OpenedOutlet)
