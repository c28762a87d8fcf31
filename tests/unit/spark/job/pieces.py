"""Batches as pieces, and the places of their records."""

from __future__ import annotations

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId
from tailrace_spark.job.offsets import PlannedBatch

A, B = ("topic", 0), ("topic", 1)


def pieces_of(plan: PlannedBatch) -> list[Piece]:
    """All records of a batch, in pieces of three; as dead letters, which need no table."""
    records = [
        RecordId(topic, partition, offset)
        for (topic, partition), end in sorted(plan.end.items())
        for offset in range(plan.start.get((topic, partition), 0), end)
    ]
    return [
        Piece((), tuple(DeadLetter(record, "") for record in records[at : at + 3])) for at in range(0, len(records), 3)
    ]


def places(pieces: object) -> list[tuple[KafkaPartition, int]]:
    assert isinstance(pieces, list)
    letters = [letter.record_id for piece in pieces for letter in piece.dead_letters]
    return [((record.topic, record.partition), record.offset) for record in letters]
