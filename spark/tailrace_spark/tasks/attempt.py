"""One attempt at a Kafka partition's records of a batch: the sink's own task, and what comes of it, as a value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.sinks.protocol import DriverOnlyError, PartitionTask, UnpreparedError
from tailrace_spark.tasks.outcome import (
    DriverOnly,
    Outcome,
    RecordCounts,
    SharedKeys,
    Unprepared,
    Written,
    failed,
)


class ForeignKeysError(Exception):
    """A key of the partition may be in another one too."""


class PartitionRecords(Iterable[Piece], Protocol):
    """The pieces of a Kafka partition's records, read once. Reading may raise ForeignKeysError."""

    @property
    def counts(self) -> RecordCounts:
        """Of all records, known behind the last piece."""

    def all_schema_ids(self) -> frozenset[bytes]:
        """The writer schemas of all records, also of the ones that were not asked for."""


def attempt(task: PartitionTask, partition: KafkaPartition, records: PartitionRecords) -> Outcome:
    """What the driver is told. Raises what it cannot be told: Spark repeats the task then."""
    try:
        result = task.write(partition, records)
    except UnpreparedError:
        return Unprepared(partition, records.all_schema_ids())
    except ForeignKeysError:
        return SharedKeys(partition)
    except DriverOnlyError as error:
        return DriverOnly(partition, str(error))
    except (ServiceError, SettingsError, FencedError) as error:
        return failed(partition, error)
    return Written(result, records.counts)
