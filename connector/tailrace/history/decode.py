"""A serialized mutation and the schema that holds for it, to the messages of its changes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from uuid import UUID

from tailrace.changes.transcode import Message, Transcoder
from tailrace.commitlog.mutation import first_table_bytes
from tailrace.errors import UnknownTableError
from tailrace.history.schema import SchemaHistory
from tailrace.position import Position
from tailrace_schemas.change import Source


def messages_at(
    history: SchemaHistory, transcoder: Transcoder, payload: bytes, version: int, source: Source
) -> list[Message]:
    """The messages of tables with cdc = true at the position that `source` names.

    What cannot hold a change is not decoded. Raises UnknownTableError, UnknownColumnError and DecodeError, as
    decode_mutation does.
    """
    position = Position(source.epoch, source.segment, source.offset)
    updates, first = first_table_bytes(payload, version)
    table = history.table(table_id(first), position)
    if table is None:
        raise UnknownTableError(table_id(first))
    # A mutation is of one keyspace.
    if table.keyspace not in history.cdc_keyspaces or (updates == 1 and not table.cdc):
        return []
    return transcoder.messages(payload, version, lambda id: history.table(table_id(id), position), source)


def source_at(node: Source, at: Position, seen: int) -> Source:
    """The source of a mutation of this node that ends at a position and was read at that time, in milliseconds."""
    return replace(node, epoch=at.epoch, segment=at.segment, offset=at.offset, seen=seen)


@lru_cache(maxsize=4096)
def table_id(id: bytes) -> UUID:
    """The table id of its 16 bytes; making one anew takes longer than decoding a mutation."""
    return UUID(bytes=id)
