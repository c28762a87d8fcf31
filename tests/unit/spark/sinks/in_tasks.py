"""A sink whose batches are written as Spark's executors write them: by copies of its task, a partition at a time."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from threading import Event

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.change import Op
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import partition as partition_of
from tailrace_schemas.tokens import token
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Delivered, Piece, Summary
from tailrace_spark.batch.task_batch import PartitionResult, TaskBatch
from tailrace_spark.job.task_loop import write_by_tasks
from tailrace_spark.sinks.protocol import (
    Capabilities,
    DriverOnlyError,
    PartitionTask,
    Sink,
    SweepingSink,
    TaskSink,
    UnpreparedError,
)
from tailrace_spark.tasks.attempt import attempt as attempt_at
from tailrace_spark.tasks.outcome import COLUMN, Outcome, RecordCounts, outcomes_of, row_of

PARTITIONS = 3
STREAM = "4c1b6a52f2a34f0d9d1f0c2f8f3e7a11"
SECONDS = 60
_numbers = count()


class LogInTasks:
    """A change log: `write` is a plan, a task for each partition of Kafka's that records are of, and a commit."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._sink.capabilities, tasks=None)

    def write(self, pieces: Iterable[Piece]) -> Summary:
        """One micro-batch; the driver writes what tasks cannot."""
        tasks = self._sink.capabilities.tasks
        assert tasks is not None
        some = list(pieces)
        try:
            return write_shares(tasks, some, shares_of(some))
        except DriverOnlyError:
            tasks.fence(STREAM)
            return self._sink.write(some)

    def close(self) -> None:
        self._sink.close()


class InTasks:
    """Sweeps and closes as the sink does; `write` is a plan, a task for each partition of keys, and a commit."""

    def __init__(self, sink: SweepingSink) -> None:
        self._sink = sink

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._sink.capabilities, tasks=None)

    @property
    def tasks(self) -> TaskSink:
        tasks = self._sink.capabilities.tasks
        assert tasks is not None
        return tasks

    def write(self, pieces: Iterable[Piece]) -> Summary:
        """One micro-batch, each partition's changes in their order; the driver writes what tasks cannot."""
        some = list(pieces)
        try:
            return write_in_tasks(self.tasks, some)
        except DriverOnlyError:
            self.tasks.fence(STREAM)
            return self._sink.write(some)

    def sweep(self) -> int:
        return self._sink.sweep()

    def close(self) -> None:
        self._sink.close()


def write_in_tasks(sink: TaskSink, pieces: Sequence[Piece], partitions: int = PARTITIONS) -> Summary:
    """One micro-batch of which each key is one partition's, and truncations are all partitions'."""
    shares = {("t.ks.t", number): list(_share(pieces, number, partitions)) for number in range(partitions)}
    return write_shares(sink, pieces, shares)


def shares_of(pieces: Sequence[Piece]) -> dict[KafkaPartition, list[Piece]]:
    """The records of each of Kafka's partitions, in their order."""
    records = [one.record_id for piece in pieces for one in piece.changes]
    records += [letter.record_id for piece in pieces for letter in piece.dead_letters]
    return {
        partition: [
            Piece(
                tuple(one for one in piece.changes if one.record_id.key[:2] == partition),
                tuple(one for one in piece.dead_letters if one.record_id.key[:2] == partition),
            )
            for piece in pieces
        ]
        for partition in sorted({record_id.key[:2] for record_id in records})
    }


def write_shares(sink: TaskSink, pieces: Sequence[Piece], shares: Mapping[KafkaPartition, Sequence[Piece]]) -> Summary:
    """One micro-batch, a task for each share of it, one after another where Spark runs them on executors."""
    batch = TaskBatch(STREAM, next(_numbers), dict.fromkeys(shares, 1 << 40))
    schemas = _schemas_of(pieces)

    def run(task: PartitionTask, finished: frozenset[KafkaPartition]) -> list[Outcome]:
        rows = [
            row_of(attempt_at(_copied(task), partition, _Share(share, schemas)))
            for partition, share in shares.items()
            if partition not in finished
        ]
        return outcomes_of(row.column(COLUMN)[0].as_py() for row in rows)

    summary, _ = write_by_tasks(sink, batch, run, schemas, lambda table: table)
    return summary


class _Share(Iterable[Piece]):
    """As PartitionRecords; a writer schema for each definition."""

    counts = RecordCounts()

    def __init__(self, pieces: Sequence[Piece], schemas: Mapping[bytes, SchemaEntry]) -> None:
        self._pieces = pieces
        self._schemas = schemas

    def __iter__(self) -> Iterator[Piece]:
        return iter(self._pieces)

    def one_copy(self, truncated: Callable[[Table], bool]) -> Iterator[Piece]:
        """As CopiedPieces says."""
        once = set[tuple[bytes, tuple[int, int]]]()
        for piece in self._pieces:
            changes = list[Delivered]()
            for delivered in piece.changes:
                identity = delivered.change.digest, _definition_of(delivered)
                if identity not in once:
                    changes.append(delivered)
                    if not truncated(delivered.change.table):
                        once.add(identity)
            yield replace(piece, changes=tuple(changes))

    def all_schema_ids(self) -> frozenset[bytes]:
        """As PartitionRecords says."""
        definitions = {_definition_of(delivered) for piece in self._pieces for delivered in piece.changes}
        of_entry = {(entry.announced, id(entry.table)): schema_id for schema_id, entry in self._schemas.items()}
        return frozenset(of_entry[definition] for definition in definitions)


def _schemas_of(pieces: Iterable[Piece]) -> dict[bytes, SchemaEntry]:
    """A schema for each definition of a batch, as it was announced."""
    changes = [delivered for piece in pieces for delivered in piece.changes]
    tables = {_definition_of(delivered): delivered.change.table for delivered in changes}
    return {
        b"%08d" % number: SchemaEntry(
            schema_id=b"%08d" % number, topic=str(table), table=table, avro="", announced=announced
        )
        for number, ((announced, _), table) in enumerate(tables.items())
    }


def _definition_of(delivered: Delivered) -> tuple[int, int]:
    return delivered.announced, id(delivered.change.table)


def attempt(
    task: PartitionTask, partition: KafkaPartition, pieces: Sequence[Piece], *, unprepared: bool = False
) -> PartitionResult | None:
    """What a copy of the task comes to, brought back as Spark does.

    None where the plan lacks a definition; with `unprepared` that is raised.
    """
    try:
        result: PartitionResult = pickle.loads(pickle.dumps(_copied(task).write(partition, pieces)))  # noqa: S301 - our own
    except UnpreparedError:
        if unprepared:
            raise
        return None
    return result


def _copied(task: PartitionTask) -> PartitionTask:
    """As Spark brings it to executors."""
    copied: PartitionTask = pickle.loads(pickle.dumps(task))  # noqa: S301 - our own
    return copied


@contextmanager
def interrupted(
    task: PartitionTask, partition: KafkaPartition, *first: Piece, then: Piece
) -> Iterator[Callable[[], PartitionResult]]:
    """An attempt in a thread of its own, which has had all pieces but the last.

    The call gives it that one, and waits for what it comes to.
    """
    reached, told = Event(), Event()

    def pieces() -> Iterator[Piece]:
        yield from first
        reached.set()
        assert told.wait(SECONDS)
        yield then

    def end() -> PartitionResult:
        told.set()
        return running.result(SECONDS)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(task.write, partition, pieces())
        assert reached.wait(SECONDS)
        try:
            yield end
        finally:
            told.set()


def _share(pieces: Iterable[Piece], number: int, partitions: int) -> Iterator[Piece]:
    for piece in pieces:
        changes = tuple(delivered for delivered in piece.changes if _is_of(delivered, number, partitions))
        letters = tuple(letter for letter in piece.dead_letters if letter.record_id.offset % partitions == number)
        yield Piece(changes, letters)


def _is_of(delivered: Delivered, number: int, partitions: int) -> bool:
    change = delivered.change
    return change.op is Op.TRUNCATE or partition_of(token(change.key or b""), partitions) == number
