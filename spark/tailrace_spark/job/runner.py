"""Runs the writing of batches into one sink. It alone decides where one is written: here, or in shares on executors.

Here is this process. There go small batches, and all of a sink whose writers cannot be brought to executors. There go
batches, too, of which no share can be written by itself. Those have truncations, keys that several partitions have, or
a mutation whose rest is not in Kafka yet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Protocol, TypeVar

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.micro_batch import MicroBatch
from tailrace_spark.job.execution import ExecutionChoice
from tailrace_spark.sinks.protocol import DataWriter, Definitions, HereOnlyError, Sink
from tailrace_spark.sinks.writing import write_here
from tailrace_spark.tasks.outcome import Failed, HereOnly, Outcome, RecordCounts, Written

log = logging.getLogger("tailrace_spark")

Definition = Callable[[Table], Table | None]
"""What a sink sees of a table; None: nothing."""
Done = tuple[Summary, RecordCounts]
T = TypeVar("T")


class Attempts(Protocol):
    """Makes attempts until one is done: a call gives what the attempt gives, while nobody else uses the sink."""

    def __call__(self, attempt: Callable[[], T], /) -> T: ...


class Shares(Protocol):
    """The records of a batch as executors write them."""

    def schemas(self) -> Iterable[SchemaEntry]:
        """The published writer schemas that they have, and perhaps others of their topics."""

    def run(self, writer: DataWriter) -> Sequence[Outcome]:
        """The outcomes of all shares. Raises MissingPackagesError where executors cannot run writers."""


class MissingPackagesError(HereOnlyError):
    """The executors' Python cannot run writers; the words say what it lacks, and what to do."""


class Runner:
    """Writes batches of one stream, by one thread at a time. `stream` gives its id, as its checkpoint has it.

    With `definition` the sink sees of tables what that gives.
    """

    def __init__(self, sink: Sink, stream: Callable[[], str], definition: Definition | None = None) -> None:
        self._sink = sink
        self._stream = cache(stream)
        self._definition: Definition = definition or (lambda table: table)
        # Of earlier batches, or of an earlier driver, shares may still be under way.
        self._left = sink.capabilities.executors

    def here(self, number: int, pieces: Iterable[Piece]) -> Summary:
        """Write a batch, or a part of it, in this process. Raises what the sink does."""
        stream = self._stream() if self._sink.capabilities.executors else ""
        summary = write_here(self._sink, pieces, MicroBatch(stream, number, here=True, fences=self._left))
        self._left = False
        return summary

    def on_executors(
        self,
        number: int,
        size: int,
        ends: Mapping[KafkaPartition, int],
        shares: Callable[[], Shares],
        choice: ExecutionChoice,
        until_done: Attempts,
    ) -> Done | None:
        """Write a batch of so many records on executors, or find that it is to be written `here`: None.

        Raises ServiceError and SettingsError as writers do, and what running them raises.
        """
        if not self._sink.capabilities.executors or choice.choose(size) == "driver":
            return None
        batch, records = MicroBatch(self._stream(), number, ends), shares()

        def attempt() -> Done:
            self._left = True
            return write_shares(self._sink, batch, records, self._definition)

        try:
            return until_done(attempt)
        except HereOnlyError as error:
            if isinstance(error, MissingPackagesError):
                choice.keep_to_driver(str(error))
            log.info("batch %d is written by the driver: %s", number, error)
            return None


def write_shares(sink: Sink, batch: MicroBatch, shares: Shares, definition: Definition) -> Done:
    """Write a batch share by share.

    Raises HereOnlyError where it is to be written here, ServiceError and SettingsError as writers do.
    """
    plan = sink.batch_write(batch, cache(lambda: _definitions(shares.schemas(), definition)))
    outcomes = shares.run(plan.writer)
    _require_written(outcomes)
    written = [outcome for outcome in outcomes if isinstance(outcome, Written)]
    summary = plan.commit([outcome.message for outcome in written])
    return summary, sum((outcome.counts for outcome in written), RecordCounts())


def _definitions(schemas: Iterable[SchemaEntry], definition: Definition) -> Definitions:
    """What the sink sees of the tables of these writer schemas, in the order in which they were announced."""
    values = [entry for entry in schemas if entry.part == "value"]
    values.sort(key=lambda entry: (entry.announced, entry.schema_id))
    seen = [(entry.announced, definition(entry.table)) for entry in values]
    return [(announced, table) for announced, table in seen if table is not None]


def _require_written(outcomes: Iterable[Outcome]) -> None:
    """Raise what kept a share from being written."""
    failures: dict[KafkaPartition, Exception] = {}
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            failures[outcome.partition] = outcome.error
        elif isinstance(outcome, HereOnly):
            raise HereOnlyError(outcome.reason)
    for partition in sorted(failures):
        raise failures[partition]
