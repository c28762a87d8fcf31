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
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.batch.micro_batch import MicroBatch
from tailrace_spark.job.execution import ExecutionChoice
from tailrace_spark.sinks.protocol import BatchWrite, DataWriter, Definitions, HereOnlyError, Sink
from tailrace_spark.sinks.writing import write_here
from tailrace_spark.tasks.outcome import Failed, HereOnly, Outcome, RecordCounts, Unprepared, Written

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

    @property
    def schemas(self) -> Mapping[bytes, SchemaEntry]:
        """All writer schemas that they may have."""

    def run(self, writer: DataWriter, written: frozenset[KafkaPartition]) -> Sequence[Outcome]:
        """Attempt all shares but those that are `written`, and bring the outcomes.

        Raises MissingPackagesError where executors cannot run writers.
        """


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
    """Write a batch share by share. What shares lacked is made ready, and they are written again.

    Raises HereOnlyError where it is to be written here, ServiceError and SettingsError as writers do.
    """
    plan = sink.batch_write(batch)
    try:
        written = _written(plan, shares, definition)
        summary = plan.commit([outcome.message for outcome in written])
    except BaseException:
        plan.abort()
        raise
    return summary, sum((outcome.counts for outcome in written), RecordCounts())


def _written(plan: BatchWrite, shares: Shares, definition: Definition) -> list[Written]:
    written: list[Written] = []
    prepared: set[bytes] = set()
    while True:
        writer = plan.writer(_definitions(prepared, shares.schemas, definition))
        written = [outcome for outcome in written if not outcome.message.of_plan]
        outcomes = shares.run(writer, frozenset(outcome.message.share for outcome in written))
        _require_written(outcomes)
        written += [outcome for outcome in outcomes if isinstance(outcome, Written)]
        if not any(isinstance(outcome, Unprepared) for outcome in outcomes):
            return written
        unprepared = _unprepared(outcomes, shares.schemas)
        if unprepared <= prepared:
            tables = ", ".join(sorted({str(shares.schemas[schema_id].table) for schema_id in unprepared}))
            raise ServiceError(f"the sink does not make ready what it needs for {tables}")
        prepared |= unprepared


def _definitions(
    schema_ids: Iterable[bytes], schemas: Mapping[bytes, SchemaEntry], definition: Definition
) -> Definitions:
    """What the sink sees of the tables of these writer schemas, in the order in which they were announced."""
    entries = [schemas[schema_id] for schema_id in schema_ids]
    tables: list[tuple[int, Table]] = []
    for entry in sorted(entries, key=lambda entry: (entry.announced, entry.schema_id)):
        table = definition(entry.table)
        if table is not None:
            tables.append((entry.announced, table))
    return tables


def _require_written(outcomes: Iterable[Outcome]) -> None:
    """Raise what kept a share from being written, and no definition would change."""
    failures: dict[KafkaPartition, Exception] = {}
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            failures[outcome.partition] = outcome.error
        elif isinstance(outcome, HereOnly):
            raise HereOnlyError(outcome.reason)
    for partition in sorted(failures):
        raise failures[partition]


def _unprepared(outcomes: Iterable[Outcome], schemas: Mapping[bytes, SchemaEntry]) -> set[bytes]:
    """The writer schemas that shares met and could not use, as far as they are published."""
    ids = {schema_id for outcome in outcomes if isinstance(outcome, Unprepared) for schema_id in outcome.schema_ids}
    return {schema_id for schema_id in ids if schema_id in schemas and schemas[schema_id].part == "value"}
