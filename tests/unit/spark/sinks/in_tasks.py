"""A sink whose batches are written as Spark's executors write them: share by share, by copies of its writer."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from threading import Event
from typing import TypeVar

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.change import Op
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import partition as partition_of
from tailrace_schemas.tokens import token
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, Delivered, MicroBatch, Piece, Summary
from tailrace_spark.job.progress import ExecutionChoice
from tailrace_spark.job.runner import Runner
from tailrace_spark.sinks.protocol import (
    BatchWrite,
    Capabilities,
    DataWriter,
    Definitions,
    Needed,
    Sink,
    SweepingSink,
    nothing_needed,
)
from tailrace_spark.tasks.outcome import COLUMN, Outcome, RecordCounts, outcomes_of, row_of
from tailrace_spark.tasks.partition_writer import Untruncated
from tailrace_spark.tasks.partition_writer import attempt as attempt_at
from tests.support.here_sink import HereSink

PARTITIONS = 3
STREAM = "4c1b6a52f2a34f0d9d1f0c2f8f3e7a11"
SECONDS = 60
FENCING = MicroBatch(STREAM, -1, here=True)
"""A batch that is written here behind those of executors."""
_numbers = count()

Writer = TypeVar("Writer")

Cut = Callable[[Sequence[Piece]], Mapping[KafkaPartition, Sequence[Piece]]]
"""Cuts a batch into shares."""


class LogInTasks(HereSink):
    """A change log: each batch is written by executors, a share for each Kafka partition; here what they cannot."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._runner = Runner(sink, lambda: STREAM)
        self.cut: Cut = shares_of

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._sink.capabilities, executors=False)

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        return self._sink.batch_write(batch) if batch.again else super().batch_write(batch, needed)

    def take(self, pieces: Iterable[Piece]) -> Summary:
        """One micro-batch."""
        return run_shares(self._runner, list(pieces), self.cut)

    def close(self) -> None:
        self._sink.close()


class InTasks(LogInTasks):
    """A merging sink, of which each key is one share's. Sweeps as the sink does."""

    def __init__(self, sink: SweepingSink) -> None:
        super().__init__(sink)
        self._sweeping = sink
        self.cut = by_keys

    def sweep(self) -> int:
        return self._sweeping.sweep()


def by_keys(pieces: Sequence[Piece]) -> dict[KafkaPartition, list[Piece]]:
    """The changes of each partition of keys in their order; truncations are all partitions'."""
    return {("t.ks.t", number): list(_share(pieces, number, PARTITIONS)) for number in range(PARTITIONS)}


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


def run_shares(runner: Runner, pieces: Sequence[Piece], cut: Cut) -> Summary:
    """One micro-batch, share by share, one after another where Spark runs them on executors; else here."""
    number, shares = next(_numbers), cut(pieces)
    ends = dict.fromkeys(shares, 1 << 40)
    records = _Shares(shares, _definitions_of(pieces))
    choice = ExecutionChoice("executors")
    done = runner.on_executors(number, len(pieces), ends, lambda: records, choice, lambda attempt: attempt())
    return runner.here(number, pieces) if done is None else done[0]


@dataclass(frozen=True)
class _Shares:
    """As runner.Shares."""

    shares: Mapping[KafkaPartition, Sequence[Piece]]
    definitions: Definitions

    def schemas(self) -> list[SchemaEntry]:
        """A schema for each definition."""
        return [
            SchemaEntry(schema_id=b"%08d" % number, topic=str(of), table=of, avro="", announced=announced)
            for number, (announced, of) in enumerate(self.definitions)
        ]

    def run(self, writer: DataWriter) -> list[Outcome]:
        """Each share by a copy of the writer."""
        rows = [
            row_of(attempt_at(_copied(writer), partition, _Share(share))) for partition, share in self.shares.items()
        ]
        return outcomes_of(row.column(COLUMN)[0].as_py() for row in rows)


class _Share(Iterable[Piece]):
    """As PartitionRecords."""

    counts = RecordCounts()

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces

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


def _definitions_of(pieces: Iterable[Piece]) -> Definitions:
    """Those of a batch's changes, with when each was announced."""
    changes = [delivered for piece in pieces for delivered in piece.changes]
    tables = {_definition_of(delivered): delivered.change.table for delivered in changes}
    return [(announced, of) for (announced, _), of in tables.items()]


def _definition_of(delivered: Delivered) -> tuple[int, int]:
    return delivered.announced, id(delivered.change.table)


def planned_by(kind: type[Writer], sink: Sink, batch: MicroBatch, definitions: Definitions = ()) -> Writer:
    """The writer of a new plan."""
    writer = sink.batch_write(batch, lambda: definitions).writer
    assert isinstance(writer, kind)
    return writer


def attempt(writer: DataWriter, partition: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
    """What a copy of the writer comes to, brought back as Spark does."""
    message = _copied(writer).write(partition, Untruncated(pieces))
    brought: CommitMessage = pickle.loads(pickle.dumps(message))  # noqa: S301 - our own
    return brought


def _copied(writer: DataWriter) -> DataWriter:
    """As Spark brings it to executors."""
    copied: DataWriter = pickle.loads(pickle.dumps(writer))  # noqa: S301 - our own
    return copied


@contextmanager
def interrupted(
    writer: DataWriter, partition: KafkaPartition, *first: Piece, then: Piece
) -> Iterator[Callable[[], CommitMessage]]:
    """An attempt in a thread of its own, which has had all pieces but the last.

    The call gives it that one, and waits for what it comes to.
    """
    reached, told = Event(), Event()

    def pieces() -> Iterator[Piece]:
        yield from first
        reached.set()
        assert told.wait(SECONDS)
        yield then

    def end() -> CommitMessage:
        told.set()
        return running.result(SECONDS)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(writer.write, partition, pieces())
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
