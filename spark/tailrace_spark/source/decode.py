"""A micro-batch's records in Arrow to pieces of changes, each small enough for memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tailrace_schemas.avro import SchemaEntry, decode
from tailrace_schemas.avro.frames import message_schema_id
from tailrace_schemas.avro.registry import UnknownSchemaError
from tailrace_schemas.errors import CorruptError, DecodeError, SettingsError
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, RecordKey

PIECE_RECORDS: Final = 2_000
PIECE_BYTES: Final = 16 * 1024 * 1024
PIECE_COLUMNS: Final = ("topic", "partition", "offset", "value", "generation", "stream_id")


def pieces(
    records: Any,
    schemas: Mapping[bytes, SchemaEntry],
    *,
    early: bool = False,
    most_records: int = PIECE_RECORDS,
    most_bytes: int = PIECE_BYTES,
) -> Iterator[Piece]:
    """Decode the records of a pyarrow Table with the columns PIECE_COLUMNS, of tailrace_spark.streams.assign's types.

    A piece ends at `most_records` records or `most_bytes` of messages. A record that cannot be decoded is a dead letter
    of its piece. `schemas` may read on when an id is missing; what it raises then, other than KeyError, is raised.
    Changes that a crash may take back raise SettingsError, unless `early` ones are taken.
    """
    changes: list[Delivered] = []
    letters: list[DeadLetter] = []
    size = 0
    for batch in records.to_batches(max_chunksize=most_records):
        columns = [batch.column(name).to_pylist() for name in PIECE_COLUMNS]
        for topic, partition, offset, value, generation, stream_id in zip(*columns, strict=True):
            assignment = None if stream_id is None else Assignment(generation, stream_id)
            _decode((topic, partition, offset), value, assignment, schemas, changes, letters)
            if not early and changes and (source := changes[-1].change.source) is not None and not source.durable:
                raise SettingsError(
                    f"{topic}, partition {partition}, offset {offset}: published before Cassandra had flushed it "
                    "(agent.early). A sink cannot take back what a crash may; stream.accept_early = true accepts it"
                )
            size += len(value or b"")
            if size >= most_bytes or len(changes) + len(letters) >= most_records:
                yield Piece(tuple(changes), tuple(letters))
                changes, letters, size = [], [], 0
    if changes or letters:
        yield Piece(tuple(changes), tuple(letters))


def _decode(
    key: RecordKey,
    value: bytes | None,
    assignment: Assignment | None,
    schemas: Mapping[bytes, SchemaEntry],
    changes: list[Delivered],
    letters: list[DeadLetter],
) -> None:
    topic, partition, offset = key
    schema_id = b""
    try:
        schema_id = message_schema_id(value or b"")
        entry = schemas.get(schema_id)
        if entry is not None and entry.part != "value":
            raise CorruptError(f"schema {schema_id.hex()} is of keys of {entry.table}, not of its changes")
        change = decode(value or b"", schemas)
        announced = -1 if entry is None else entry.announced
        record_id = RecordId(topic, partition, offset, schema_id)
        changes.append(Delivered(record_id, change, assignment, announced, message=value or b""))
    except UnknownSchemaError:
        reason = f"schema {schema_id.hex()} is not published: a foreign message?"
        letters.append(DeadLetter(RecordId(topic, partition, offset, schema_id), reason, value or b""))
    except DecodeError as error:
        letters.append(DeadLetter(RecordId(topic, partition, offset, schema_id), str(error), value or b""))
