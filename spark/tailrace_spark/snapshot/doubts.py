"""What the log leaves open of rows that a snapshot has read, and what an answer by their keys makes of it. No I/O.

CQL does not show whether a row has a marker, which keeps it when its last cell goes. And it shows of counters their
totals, where the log has shards. So such rows are read back by key, and the answers are `read` changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from tailrace_schemas.change import Cell, Change, Marker, Op, Origin, Source
from tailrace_schemas.cql.types import quote_identifier
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.digest import change_digest
from tailrace_schemas.position import Position
from tailrace_schemas.table import Column, Table
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.rowstate.counters import context_of_total
from tailrace_spark.snapshot.changes import GRACE_MICROS

_SEEN: Final = Source("", "", Position(0, 0, 0), 0, 1, Origin.SNAPSHOT)


@dataclass(frozen=True, slots=True)
class Doubt:
    """A row that is to be read back: the last change of it, and the newest write time of its counters."""

    delivered: Delivered
    written: int

    @property
    def values(self) -> list[bytes | None]:
        """The bytes of its key's columns, those of a static row's partition key alone."""
        change = self.delivered.change
        types = [column.type for column in change.table.partition_key]
        return [*split_key(types, change.key or b""), *(change.clustering or ())]


def doubts_of(
    changes: Iterable[Delivered], tables: Collection[str], *, counters: bool
) -> dict[tuple[UUID, bool], list[Doubt]]:
    """The rows of these tables ("keyspace.name") to be read back, by the ids of their tables and whether static.

    Each row is there once. `counters`: also what changes counters.
    """
    rows: dict[tuple[UUID, bool], dict[tuple[object, ...], Doubt]] = {}
    for delivered in changes:
        change = delivered.change
        if not is_asked(change, tables, counters=counters):
            continue
        rows_of_table = rows.setdefault((change.table.id, change.static), {})
        row_key = (change.key, change.clustering)
        earlier = rows_of_table.get(row_key)
        written = max([0 if earlier is None else earlier.written, *[cell.written for cell in change.cells]])
        rows_of_table[row_key] = Doubt(delivered, written)
    return {table: list(rows_of_table.values()) for table, rows_of_table in rows.items()}


def is_asked(change: Change, tables: Collection[str], *, counters: bool) -> bool:
    """Whether a change's row is to be read back, of these arguments of `doubts_of`."""
    return str(change.table) in tables and _is_open(change, counters=counters)


def _is_open(change: Change, *, counters: bool) -> bool:
    """Whether the log leaves open what SELECT returns of the change's row."""
    if change.op is not Op.UPDATE or change.key is None:
        return False
    live = any(not cell.tombstone for cell in change.cells)
    if change.table.is_counter:
        return counters and live
    # A marker of the log settles it, and so does a cell that lives. Static rows have no markers.
    return not change.static and change.marker is None and not live


def statement_by_key(table: Table, columns: Sequence[str], *, static: bool) -> str:
    """The SELECT of these columns of a row, by the values of its key; of a static row by those of its partition's."""
    key = [column.name for column in (table.partition_key if static else table.key)]
    names = ", ".join([quote_identifier(name) for name in (table.partition_key[0].name, *columns)])
    conditions = " AND ".join([f"{quote_identifier(name)} = ?" for name in key])
    limit = " LIMIT 1" if static else ""
    source = f"{quote_identifier(table.keyspace)}.{quote_identifier(table.name)}"
    return f"SELECT {names} FROM {source} WHERE {conditions}{limit}"  # noqa: S608 - all names are quoted


def answer(
    doubt: Doubt, columns: Sequence[str], row: Sequence[bytes | None] | None, requested_at: int
) -> Delivered | None:
    """What is merged of a row that was read back at `requested_at` (microseconds): a `read` change; None: nothing.

    `row` has the bytes of these columns; None: SELECT returns no row.
    """
    change = doubt.delivered.change
    if row is None:
        return None
    marker: Marker | None = None
    cells: tuple[Cell, ...] = ()
    if change.table.is_counter:
        by_name = {column.name: column for column in change.table.columns}
        cells = tuple(
            [
                _counter(by_name[name], value, doubt.written, requested_at)
                for name, value in zip(columns, row, strict=True)
                if value is not None and name in by_name
            ]
        )
    elif all(value is None for value in row):
        # Of what is written or deleted while it is read the log tells, with a later time.
        marker = Marker(requested_at - GRACE_MICROS)
    if marker is None and not cells:
        return None
    read = Change(
        op=Op.READ,
        table=change.table,
        token=change.token,
        key=change.key,
        clustering=change.clustering,
        static=change.static,
        marker=marker,
        cells=cells,
        source=replace(_SEEN, seen=requested_at // 1000),
    )
    read = replace(read, digest=change_digest(read))
    # The message is of the change that was in doubt, not of the row that was read.
    return replace(doubt.delivered, change=read, message=b"", others=(), images=None)


def _counter(column: Column, value: bytes, written: int, requested_at: int) -> Cell:
    return Cell(
        column, None, written, None, None, context_of_total(int.from_bytes(value, "big", signed=True), requested_at)
    )
