"""A micro-batch by tasks: planned with the sink, attempted, planned again with what tasks lacked, and committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.batch.task_batch import TaskBatch
from tailrace_spark.sinks.protocol import DriverOnlyError, PartitionTask, TaskSink
from tailrace_spark.tasks.outcome import DriverOnly, Failed, Outcome, RecordCounts, SharedKeys, Unprepared, Written

Run = Callable[[PartitionTask, frozenset[KafkaPartition]], Sequence[Outcome]]
"""Attempts a task at all Kafka partitions of a batch but those that are written, and brings the outcomes."""
Definition = Callable[[Table], Table | None]
"""What the sink sees of a table; None: nothing."""


class SharedKeysError(Exception):
    """Keys of one Kafka partition may be in another one too: the topic has got more partitions."""


def write_by_tasks(
    sink: TaskSink, batch: TaskBatch, run: Run, schemas: Mapping[bytes, SchemaEntry], definition: Definition
) -> tuple[Summary, RecordCounts]:
    """Write a batch, whose records have these writer schemas.

    Raises SharedKeysError and DriverOnlyError where only the driver can write it, ServiceError and SettingsError as
    tasks do, and what `run` raises.
    """
    written: list[Written] = []
    prepared: set[bytes] = set()
    while True:
        task = sink.plan(batch, _definitions(prepared, schemas, definition))
        written = [outcome for outcome in written if not outcome.result.of_plan]
        outcomes = run(task, frozenset(outcome.result.partition for outcome in written))
        _require_written(outcomes)
        written += [outcome for outcome in outcomes if isinstance(outcome, Written)]
        if not any(isinstance(outcome, Unprepared) for outcome in outcomes):
            summary = sink.commit(batch, [outcome.result for outcome in written])
            return summary, sum((outcome.counts for outcome in written), RecordCounts())
        unprepared = _unprepared(outcomes, schemas)
        if unprepared <= prepared:
            tables = ", ".join(sorted({str(schemas[schema_id].table) for schema_id in unprepared}))
            raise ServiceError(f"the sink does not make ready what it needs for {tables}")
        prepared |= unprepared


def _definitions(
    schema_ids: Iterable[bytes], schemas: Mapping[bytes, SchemaEntry], definition: Definition
) -> Sequence[tuple[int, Table]]:
    """What the sink sees of the tables of these writer schemas, in the order in which they were announced."""
    entries = [schemas[schema_id] for schema_id in schema_ids]
    tables: list[tuple[int, Table]] = []
    for entry in sorted(entries, key=lambda entry: (entry.announced, entry.schema_id)):
        table = definition(entry.table)
        if table is not None:
            tables.append((entry.announced, table))
    return tables


def _require_written(outcomes: Iterable[Outcome]) -> None:
    """Raise what kept a partition from being written, and no definition would change."""
    failures: dict[KafkaPartition, Exception] = {}
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            failures[outcome.partition] = outcome.error
        elif isinstance(outcome, SharedKeys):
            raise SharedKeysError("{}, partition {}, has keys that another partition has".format(*outcome.partition))
        elif isinstance(outcome, DriverOnly):
            raise DriverOnlyError(outcome.reason)
    for partition in sorted(failures):
        raise failures[partition]


def _unprepared(outcomes: Iterable[Outcome], schemas: Mapping[bytes, SchemaEntry]) -> set[bytes]:
    """The writer schemas that tasks met and could not use, as far as they are published."""
    ids = {schema_id for outcome in outcomes if isinstance(outcome, Unprepared) for schema_id in outcome.schema_ids}
    return {schema_id for schema_id in ids if schema_id in schemas and schemas[schema_id].part == "value"}
