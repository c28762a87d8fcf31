"""A micro-batch's records in Arrow to pieces of changes, each small enough for memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import pyarrow.compute as pc

from tailrace_schemas.avro import SchemaEntry, decode
from tailrace_schemas.avro.frames import message_schema_id
from tailrace_schemas.avro.registry import UnknownSchemaError
from tailrace_schemas.change import Change
from tailrace_schemas.errors import CorruptError, DecodeError, SettingsError
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, RecordKey

PIECE_RECORDS: Final = 2_000
PIECE_BYTES: Final = 16 * 1024 * 1024
BY_OFFSET: Final = [(name, "ascending") for name in ("topic", "partition", "offset")]
PIECE_COLUMNS: Final = ("topic", "partition", "offset", "value", "generation", "stream_id")
_MOST: Final = 500_000
"""Digests that are kept, some 60 MB: copies come soon after each other."""


def pieces(
    records: Any,
    schemas: Mapping[bytes, SchemaEntry],
    *,
    early: bool = False,
    copies: Copies | None = None,
    most_records: int = PIECE_RECORDS,
    most_bytes: int = PIECE_BYTES,
) -> Iterator[Piece]:
    """Decode the records of a pyarrow Table with the columns PIECE_COLUMNS, of tailrace_spark.streams.assign's types.

    With `copies`, which needs its other columns too, those that are known by then are passed over.

    A piece ends at `most_records` records or `most_bytes` of messages. A record that cannot be decoded is a dead letter
    of its piece. `schemas` may read on when an id is missing; what it raises then, other than KeyError, is raised.
    Changes that a crash may take back raise SettingsError, unless `early` ones are taken.
    """
    changes: list[Delivered] = []
    letters: list[DeadLetter] = []
    size = 0
    for batch in records.to_batches(max_chunksize=most_records):
        columns = [batch.column(name).to_pylist() for name in PIECE_COLUMNS]
        identities = repeat(None, batch.num_rows) if copies is None else copies.identities(batch)
        for topic, partition, offset, value, generation, stream_id, identity in zip(*columns, identities, strict=True):
            if copies is not None and copies.has(identity):
                continue
            assignment = None if stream_id is None else Assignment(generation, stream_id)
            decoded = _decode((topic, partition, offset), value, assignment, schemas)
            if isinstance(decoded, DeadLetter):
                letters.append(decoded)
            else:
                changes.append(decoded)
                if copies is not None:
                    copies.add(identity, decoded.change)
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
    key: RecordKey, value: bytes | None, assignment: Assignment | None, schemas: Mapping[bytes, SchemaEntry]
) -> Delivered | DeadLetter:
    topic, partition, offset = key
    message, schema_id = value or b"", b""
    try:
        schema_id = message_schema_id(message)
        entry = schemas.get(schema_id)
        if entry is not None and entry.part != "value":
            raise CorruptError(f"schema {schema_id.hex()} is of keys of {entry.table}, not of its changes")
        change = decode(message, schemas)
    except UnknownSchemaError:
        reason = f"schema {schema_id.hex()} is not published: a foreign message?"
    except DecodeError as error:
        reason = str(error)
    else:
        announced = -1 if entry is None else entry.announced
        return Delivered(RecordId(topic, partition, offset, schema_id), change, assignment, announced, message=message)
    return DeadLetter(RecordId(topic, partition, offset, schema_id), reason, message)


class Copies:
    """Copies of a change that another replica's agent has published too, left out of a task before they are decoded.

    The changes of a share so far, of which no more copies are needed.

    A copy has the digest of its change. It has its schema too: a record of another schema may tell of a newer
    definition. A record counts as long as no copy of it was decoded: its bytes may be damaged where theirs are not.
    """

    def __init__(self, truncated: Callable[[Table], bool], is_asked: Callable[[Change], bool] | None) -> None:
        """Of tables that are `truncated` all copies count, and of changes whose rows are asked for.

        A replica may have a change from before a truncation, and another one from behind it (merge.truncation).
        """
        self._truncated = truncated
        self._is_asked = is_asked
        self._tables: dict[int, bool] = {}
        self._seen: set[bytes] = set()

    def identities(self, batch: Any) -> Sequence[bytes | None]:
        """What names the change of each record of a batch of tailrace_spark.streams.assign; None: it has no head."""
        names: list[bytes | None] = pc.binary_join_element_wise(
            batch.column("digest"), batch.column("schema_id"), b""
        ).to_pylist()
        return names

    def has(self, identity: bytes | None) -> bool:
        """Whether a copy of this change was decoded, and is enough."""
        return identity in self._seen

    def add(self, identity: bytes | None, change: Change) -> None:
        """Take note of a change that was decoded."""
        truncated = self._tables.get(id(change.table))
        if truncated is None:
            truncated = self._tables[id(change.table)] = self._truncated(change.table)
        if truncated or identity is None or (self._is_asked is not None and self._is_asked(change)):
            return
        if len(self._seen) == _MOST:
            self._seen.clear()
        self._seen.add(identity)
