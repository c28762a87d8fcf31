"""Serialized mutations for tests, of the smallest kind there is: partition deletions."""

from __future__ import annotations

from uuid import UUID

from tailrace.commitlog.model import Mutation, PartitionUpdate, Row
from tailrace_schemas.change import Marker
from tailrace_schemas.cql.vint import write_unsigned
from tailrace_schemas.table import Table
from tests.unit.commitlog.written import Stats, encode

# EncodingStats' epoch: 2015-09-22T00:00:00Z in microseconds.
EPOCH = 1_442_880_000_000_000


def deletion(table: Table | UUID, key: bytes, written: int = EPOCH) -> bytes:
    """A mutation that deletes one partition of one table."""
    return mutation((table, key, written))


def mutation(*updates: tuple[Table | UUID, bytes, int]) -> bytes:
    """A mutation of several partition deletions: (table, serialized key, write time in microseconds)."""
    return write_unsigned(len(updates)) + b"".join(_update(*update) for update in updates)


def insertion(table: Table, key: bytes, written: int = EPOCH) -> bytes:
    """A mutation that writes one row of a table without clustering columns, naming all of its columns: all null."""
    row = Row(clustering=(), marker=Marker(written))
    update = PartitionUpdate(table=table, key=key, items=(row,))
    return encode(Mutation(updates=(update,)), Stats(), [((), table.regular)])


def _update(table: Table | UUID, key: bytes, written: int) -> bytes:
    """UnfilteredRowIteratorSerializer: id, key, flags, stats, columns (all), deletion, end of partition."""
    table_id = table if isinstance(table, UUID) else table.id
    stats = write_unsigned(written - EPOCH) + b"\x00\x00"
    return table_id.bytes + write_unsigned(len(key)) + key + b"\x04" + stats + b"\x00" + b"\x00\x00" + b"\x01"
