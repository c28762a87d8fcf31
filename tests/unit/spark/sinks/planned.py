"""A sink that keeps what it is asked for, and whose writers say what they are to say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, MicroBatch, Piece, Summary
from tailrace_spark.sinks.protocol import BatchWrite, Capabilities, Needed, nothing_needed, summed

Write = Callable[[KafkaPartition, Iterable[Piece]], CommitMessage]


def read_all(share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
    """Take all pieces in."""
    read = list(pieces)
    changes = sum(len(piece.changes) for piece in read)
    return CommitMessage(share, Summary(changes, changes, sum(len(piece.dead_letters) for piece in read)), read)


@dataclass(frozen=True)
class PlannedWriter:
    """The writer of a sink's plan; by default it takes in everything."""

    number: int
    act: Write = field(default=read_all, compare=False)

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        return self.act(share, pieces)


@dataclass
class Planned:
    """What was planned and committed."""

    act: Write = read_all
    plans: list[tuple[MicroBatch, list[tuple[int, Table]]]] = field(default_factory=list)
    commits: list[tuple[MicroBatch, list[CommitMessage]]] = field(default_factory=list)
    fails: Exception | None = None
    """What the next plan raises."""
    ordered: bool = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(executors=True, ordered=self.ordered)

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        self.plans.append((batch, list(needed())))
        failure, self.fails = self.fails, None
        if failure is not None:
            raise failure
        return BatchWrite(PlannedWriter(len(self.plans) - 1, self.act), partial(self._commit, batch))

    def _commit(self, batch: MicroBatch, messages: Sequence[CommitMessage]) -> Summary:
        self.commits.append((batch, list(messages)))
        return summed(messages)

    def close(self) -> None:
        """There is nothing to close."""
