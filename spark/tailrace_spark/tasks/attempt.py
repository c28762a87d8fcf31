"""One attempt at a Kafka partition's share of a batch: the sink's own writer, and what comes of it, as a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tailrace_schemas.change import Op
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.sinks.one_copy import one_copy
from tailrace_spark.sinks.protocol import DataWriter, HereOnlyError
from tailrace_spark.tasks.outcome import HereOnly, Outcome, RecordCounts, Written, failed


class PartitionRecords(Iterable[Piece], Protocol):
    """The pieces of a Kafka partition's records, read once. Reading may raise HereOnlyError."""

    @property
    def counts(self) -> RecordCounts:
        """Of all records, known behind the last piece."""


def attempt(writer: DataWriter, partition: KafkaPartition, records: PartitionRecords) -> Outcome:
    """What the driver is told. Raises what it cannot be told: Spark repeats the task then."""
    try:
        message = writer.write(partition, Untruncated(records))
    except HereOnlyError as error:
        return HereOnly(partition, str(error))
    except (ServiceError, SettingsError, FencedError) as error:
        return failed(partition, error)
    return Written(message, records.counts)


@dataclass(frozen=True, slots=True)
class Untruncated(Iterable[Piece]):
    """The pieces of a share. A truncation is of the keys of all shares, which are written in no order.

    At one, reading raises HereOnlyError.
    """

    pieces: Iterable[Piece]

    def __iter__(self) -> Iterator[Piece]:
        return without_truncations(self.pieces)

    def one_copy(self, truncated: Callable[[Table], bool]) -> Iterator[Piece]:
        """As CopiedPieces says."""
        return without_truncations(one_copy(self.pieces, truncated))


def without_truncations(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces. Raises HereOnlyError at one with a truncation, of which nothing is given then."""
    for piece in pieces:
        for delivered in piece.changes:
            if delivered.change.op is Op.TRUNCATE:
                raise HereOnlyError(f"a truncation of {delivered.change.table}, which is of all keys")
        yield piece
