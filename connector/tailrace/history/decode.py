"""A serialized mutation and the schema that holds for it, to its changes."""

from __future__ import annotations

from typing import Final

from tailrace.changes.split import changes_of
from tailrace.commitlog.mutation import decode_mutation, first_table
from tailrace.errors import UnknownTableError
from tailrace.history.schema import SchemaHistory
from tailrace.position import Position
from tailrace_schemas.change import Change, Source

_DDL: Final = "system_schema"


def changes_at(history: SchemaHistory, payload: bytes, version: int, source: Source) -> tuple[Change, ...] | None:
    """The changes of tables with cdc = true at the position that `source` names; None for a mutation that is DDL.

    What cannot hold a change is not decoded. Raises UnknownTableError, UnknownColumnError and DecodeError, as
    decode_mutation does.
    """
    position = Position(source.epoch, source.segment, source.offset)
    updates, table_id = first_table(payload, version)
    table = history.table(table_id, position)
    if table is None:
        raise UnknownTableError(table_id)
    if table.keyspace == _DDL:
        return None
    # A mutation is of one keyspace.
    if table.keyspace not in history.cdc_keyspaces or (updates == 1 and not table.cdc):
        return ()
    mutation = decode_mutation(payload, version, lambda id: history.table(id, position))
    return changes_of(mutation, source, lambda table: table.cdc)
