"""Runs the writing of batches into one sink. It alone decides where one is written: here, or in shares on executors.

Here is this process. There go small batches, and all of a sink whose writers cannot be brought to executors. There go
batches, too, of which no share can be written by itself. Those have truncations, keys that several partitions have, or
a mutation whose rest is not in Kafka yet.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Protocol, TypeVar
from uuid import uuid4

from pyspark.errors import PythonException
from pyspark.sql import DataFrame

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import MicroBatch, Piece, Summary
from tailrace_spark.job.checkpoint import encode_note, read_note
from tailrace_spark.job.checkpoint_files import Folder
from tailrace_spark.job.progress import ExecutionChoice
from tailrace_spark.sinks.protocol import DataWriter, Definitions, HereOnlyError, Sink, write_here
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.job import TaskRunner
from tailrace_spark.tasks.outcome import Failed, HereOnly, Outcome, RecordCounts, Written

log = logging.getLogger("tailrace_spark")

Definition = Callable[[Table], Table | None]
"""What a sink sees of a table; None: nothing."""
Done = tuple[Summary, RecordCounts]
T = TypeVar("T")
_NOTE: Final = "tasks.json"
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


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


@dataclass(frozen=True, slots=True)
class ExecutorShares:
    """As Shares: a batch of `with_head`. `published` are all schemas by id, in a copy that stays as it is.

    `partitions` counts those of each topic that it has records of.
    """

    tasks: TaskRunner
    frame: DataFrame
    table: StreamTable
    published: Mapping[bytes, SchemaEntry]
    partitions: Mapping[str, int]
    read_back: ReadBack | None = None

    def schemas(self) -> Iterable[SchemaEntry]:
        """As Shares says. The heads of the records are read where a topic has had several definitions."""
        entries = [entry for entry in self.published.values() if entry.topic in self.partitions]
        values = [entry.topic for entry in entries if entry.part == "value"]
        if len(values) == len(set(values)):
            return entries
        heads = self.frame.select("schema_id").distinct().collect()
        used = {bytes(head.schema_id) for head in heads if head.schema_id is not None}
        return [entry for schema_id, entry in self.published.items() if schema_id in used]

    def run(self, writer: DataWriter) -> Sequence[Outcome]:
        """As Shares says. Raises what Spark does, where a job fails."""
        try:
            return self.tasks.run(self.frame, writer, self.table, self.published, self.partitions, self.read_back)
        except PythonException as error:
            raise missing_packages(error) from error


def stream_id(files: Folder) -> str:
    """The id of a checkpoint's stream; it is in the checkpoint before anybody hears of it.

    `files` are those of `<checkpoint>/tailrace`.
    """
    note = read_note(files, _NOTE)
    if note is None:
        note = {"stream": uuid4().hex}
        files.write(_NOTE, encode_note(**note))
    return str(note["stream"])


def missing_packages(error: PythonException) -> Exception:
    """What a job's failure is about: packages that the executors' Python lacks, or what it says itself."""
    lacking = _NO_MODULE.search(str(error))
    if lacking is None:
        return error
    return MissingPackagesError(
        f"the executors' Python has no module {lacking[1]}: bring it by `tailrace stream --archive FILE` and "
        "spark.archives (docs/spark.md)"
    )
