"""A serialized mutation and the schema that holds for it, to the messages of its changes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from uuid import UUID

from tailrace.changes.transcode import Message, Transcoder
from tailrace.commitlog.mutation import first_epoch, first_table_bytes
from tailrace.errors import UnknownTableError
from tailrace.history.schema import SchemaHistory
from tailrace.position import Position
from tailrace_schemas.change import Source
from tailrace_schemas.table import Table


def messages_at(
    history: SchemaHistory, transcoder: Transcoder, payload: bytes, version: int, source: Source
) -> list[Message]:
    """The messages of tables with cdc = true at the position that `source` names.

    What cannot hold a change is not decoded. Where updates carry an epoch of the cluster's metadata and the history
    knows epochs (Cassandra 6), that says which definition, whatever the position. Raises UnknownTableError,
    NewerSchemaError, UnknownColumnError and DecodeError, as decode_mutation does.
    """
    position = Position(source.epoch, source.segment, source.offset)
    updates, first = first_table_bytes(payload, version)
    epoch = None if history.metadata is None else first_epoch(payload, version)
    if epoch is None:
        table = history.table(table_id(first), position)
    else:
        table = history.written_by(table_id(first), position, epoch)
    if table is None:
        raise UnknownTableError(table_id(first))
    # A mutation is of one keyspace.
    if table.keyspace not in history.cdc_keyspaces or (updates == 1 and not table.cdc):
        return []
    if epoch is None:
        return transcoder.messages(payload, version, lambda id: history.table(table_id(id), position), source)

    def written_by(id: bytes, epoch: int) -> Table | None:
        return history.written_by(table_id(id), position, epoch)

    return transcoder.messages(payload, version, lambda id: history.table(table_id(id), position), source, written_by)


def source_at(node: Source, at: Position, seen: int) -> Source:
    """The source of a mutation of this node that ends at a position and was read at that time, in milliseconds."""
    return replace(node, epoch=at.epoch, segment=at.segment, offset=at.offset, seen=seen)


@lru_cache(maxsize=4096)
def table_id(id: bytes) -> UUID:
    """The table id of its 16 bytes; making one anew takes longer than decoding a mutation."""
    return UUID(bytes=id)
