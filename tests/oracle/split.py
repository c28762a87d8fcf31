"""A mutation to its changes by way of objects: what the transcoder's messages are held against.

One row, static row, deletion or range each, in the order of the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from tailrace.commitlog.model import Mutation, PartitionUpdate, Row
from tailrace_schemas.change import (
    EXPIRED_TTL,
    STREAMED,
    UPDATE_BEGINS,
    UPDATE_ENDS,
    Bound,
    Change,
    Deletion,
    Op,
    Source,
)
from tailrace_schemas.digest import change_digest
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token

# ClusteringPrefix.Kind ordinals by what they say of the range that they open, and of the one that they close.
_OPENS_INCLUSIVE: Final = {1: True, 2: True, 5: False, 7: False}
_CLOSES_INCLUSIVE: Final = {0: False, 2: False, 5: True, 6: True}

# (newest write time, 1 for deletions, 0 for the static row, place among the update's items)
_Rank = tuple[int, int, int, int]
_Unit = tuple[_Rank, list[Change]]


def changes_of(mutation: Mutation, source: Source, tracked: Callable[[Table], bool]) -> tuple[Change, ...]:
    """The changes of those updates whose table is tracked, digests taken, `index` and `count` set in their source.

    Order (docs/contracts.md section 1): updates in wire order, and in an update by the newest write time that the
    change contains, ascending. At a tie: data before deletions, then static before rows, rows in clustering order,
    ranges once. A row's own deletion stands right before its data, also where it is not older. Nothing of an update is
    left out, except rows that hold nothing but cells of dropped columns.
    """
    tracked_updates = [update for update in mutation.updates if tracked(update.table)]
    updates = [list(_update_changes(update)) for update in tracked_updates]
    count = sum(map(len, updates))
    index = 0
    placed: list[Change] = []
    for update, changes in zip(tracked_updates, updates, strict=True):
        update_source_flags = source.flags | (STREAMED if update.streamed else 0)
        first, last = index, index + len(changes) - 1
        for change in changes:
            flags = update_source_flags | _update_flags(index, first, last, count)
            change_source = replace(source, index=index, count=count, flags=flags)
            placed.append(replace(change, digest=change_digest(change), source=change_source))
            index += 1
    return tuple(placed)


def _update_flags(index: int, first: int, last: int, count: int) -> int:
    """What a change's `flags` say of its table's update, which has the indices from `first` to `last` of `count`.

    Nothing where `index` and `count` say it: in a mutation of one table.
    """
    begins = UPDATE_BEGINS if index == first and index > 0 else 0
    return begins | (UPDATE_ENDS if index == last and index < count - 1 else 0)


def _update_changes(update: PartitionUpdate) -> Iterator[Change]:
    bare = Change(op=Op.UPDATE, table=update.table, token=token(update.key), key=update.key)
    units: list[_Unit] = []
    if update.deletion is not None:
        change = replace(bare, op=Op.DELETE_PARTITION, deletion=update.deletion)
        units.append(((update.deletion.written, 1, 1, -1), [change]))
    if update.static is not None:
        units += _row_units(bare, update.static, -1)
    opened: tuple[int, Bound, Deletion] | None = None
    for wire_index, item in enumerate(update.items):
        if isinstance(item, Row):
            units += _row_units(bare, item, wire_index)
            continue
        if opened is not None and item.close is not None:
            units.append(_range_unit(bare, opened, Bound(item.values, _CLOSES_INCLUSIVE[item.kind])))
        opened = None if item.open is None else (wire_index, Bound(item.values, _OPENS_INCLUSIVE[item.kind]), item.open)
    units.sort(key=lambda unit: unit[0])
    for _, changes in units:
        yield from changes


def _range_unit(bare: Change, opened: tuple[int, Bound, Deletion], end: Bound) -> _Unit:
    wire_index, start, deletion = opened
    change = replace(bare, op=Op.DELETE_RANGE, deletion=deletion, start=start, end=end)
    return (deletion.written, 1, 1, wire_index), [change]


def _row_units(bare: Change, row: Row, row_index: int) -> list[_Unit]:
    """The row's deletion and the row's data: two units, or one where the deletion is not older than the data."""
    clustering = None if row.static else row.clustering
    placed = replace(bare, clustering=clustering, static=row.static)
    side = 0 if row.static else 1
    units: list[_Unit] = []
    deletion = row.deletion
    if deletion is not None:
        change = replace(placed, op=Op.DELETE, deletion=deletion)
        units.append(((deletion.written, 1, side, row_index), [change]))
    written = _newest(bare.table, row)
    if written is None:
        return units
    op = Op.UPDATE if row.marker is None else Op.DELETE if row.marker.ttl == EXPIRED_TTL else Op.INSERT
    data = replace(
        placed,
        op=op,
        marker=row.marker,
        cells=row.cells,
        column_deletions=row.column_deletions,
    )
    if deletion is not None and deletion.written >= written:
        return [((deletion.written, 0, side, row_index), [*units[0][1], data])]
    return [*units, ((written, 0, side, row_index), [data])]


def _newest(table: Table, row: Row) -> int | None:
    """The newest write time of a row's data; None for a row that holds none but of dropped columns."""
    cells, deletions = row.cells, row.column_deletions
    if table.dropped:
        live = frozenset(column.name_bytes for column in table.columns)
        cells = tuple(cell for cell in cells if cell.column.name_bytes in live)
        deletions = tuple(deleted for deleted in deletions if deleted.column.name_bytes in live)
    times = [cell.written for cell in cells]
    times += [deleted.deletion.written for deleted in deletions]
    if row.marker is not None:
        times.append(row.marker.written)
    return max(times, default=None)
