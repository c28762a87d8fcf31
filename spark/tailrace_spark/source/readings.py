"""Readings of topics: what is read again, or of a topic that was made again, has places that no change had before.

Sinks that keep each change leave out what they have by its place in Kafka. So they would leave out all that a reset
reads, and the first records of a topic that begins at offset 0 again. In the places of a later reading the topic is
`<topic>@<reading>`, as it is `<topic>@<snapshot>` in those of rows that a snapshot reads. Sinks that merge rows are
given the places of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, DeadLetter, Delivered, MicroBatch, Piece, RecordId, Summary
from tailrace_spark.sinks.protocol import BatchWrite, Capabilities, DataWriter, Needed, Sink, nothing_needed
from tailrace_spark.streams.assign import SNAPSHOT_MARK

Readings = Mapping[str, str]
"""The name of the reading of each topic, and under EVERY that of all other topics. The first one has no name."""

EVERY: Final = ""


def reading_of(topic_id: str, earlier_id: str | None) -> str:
    """The name of a topic's next reading: Kafka's id, with more behind it where the one read before had the same.

    A topic that lost its end and grew again, twice, would else have places twice.
    """
    return topic_id if topic_id != earlier_id else f"{topic_id}.{uuid4().hex[:12]}"


def of_readings(sink: Sink, readings: Readings) -> Sink:
    """The sink, given places of these readings if it keeps each change. `readings` may grow between batches."""
    return _ReadingSink(sink, readings) if sink.capabilities.ordered else sink


class _ReadingSink:
    """As the sink, whose batches it moves."""

    def __init__(self, sink: Sink, readings: Readings) -> None:
        self._sink = sink
        self._readings = readings

    @property
    def capabilities(self) -> Capabilities:
        return self._sink.capabilities

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """As Sink says."""
        readings = dict(self._readings)
        ends = {_partition(partition, readings): end for partition, end in batch.ends.items()}
        moved = self._sink.batch_write(replace(batch, ends=ends), needed)

        def commit(messages: Sequence[CommitMessage]) -> Summary:
            return moved.commit([replace(message, share=_partition(message.share, readings)) for message in messages])

        return BatchWrite(_ReadingWriter(moved.writer, readings), commit)

    def close(self) -> None:
        self._sink.close()


@dataclass(frozen=True, slots=True)
class _ReadingWriter:
    """As the writer, for shares and pieces as Kafka has them."""

    writer: DataWriter = field(repr=False)
    readings: Readings

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        message = self.writer.write(_partition(share, self.readings), _moved(pieces, self.readings))
        return replace(message, share=share)


def _topic(topic: str, readings: Readings) -> str:
    name = readings.get(topic) or readings.get(EVERY)
    return topic if not name or SNAPSHOT_MARK in topic else f"{topic}{SNAPSHOT_MARK}{name}"


def _partition(partition: KafkaPartition, readings: Readings) -> KafkaPartition:
    return _topic(partition[0], readings), partition[1]


def _moved(pieces: Iterable[Piece], readings: Readings) -> Iterable[Piece]:
    return (_piece(piece, readings) for piece in pieces) if readings else pieces


def _piece(piece: Piece, readings: Readings) -> Piece:
    return Piece(
        tuple(replace(delivered, record_id=_record_id(delivered, readings)) for delivered in piece.changes),
        tuple(replace(letter, record_id=_record_id(letter, readings)) for letter in piece.dead_letters),
    )


def _record_id(record: Delivered | DeadLetter, readings: Readings) -> RecordId:
    record_id = record.record_id
    return replace(record_id, topic=_topic(record_id.topic, readings))
