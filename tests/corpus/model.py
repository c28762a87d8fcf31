"""What SELECT has to answer, from the changes of the log alone, merged by row state: as bytes, with times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.clustering import clustering_key, range_limits
from tailrace_schemas.cql.order import sortable
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.table import Table
from tailrace_spark.rowstate.cells import CellState, covers, total
from tailrace_spark.rowstate.deletions import NOTHING_DELETED, PartitionState, RangeDeletion, flatten, merge_partitions
from tailrace_spark.rowstate.row import ColumnState, RowState, state_of

_TIME_UUID: Final = CqlType("timeuuid")

Shown = tuple[bytes | None, bytes | None, bytes | None]
"""Value, WRITETIME and TTL, as a node sends them."""
Row = dict[str, Shown]
Place = tuple[bytes, bytes | None]
"""Partition key, and the clustering values as bytes that order; None for a partition that has static columns only."""

_NULL: Final[Shown] = (None, None, None)


@dataclass(slots=True)
class Model:
    """One table, as its newest definition shows it. Changes may come in any order."""

    table: Table
    partitions: dict[bytes, PartitionState] = field(default_factory=dict)
    ranges: dict[bytes, list[RangeDeletion]] = field(default_factory=dict)
    rows: dict[Place, RowState] = field(default_factory=dict)
    ties: set[tuple[bytes, str]] = field(default_factory=set)
    """Partitions and columns with elements of other bytes that are equal in all: there a node keeps the first."""

    def take(self, change: Change) -> None:
        """Take in one change of the table."""
        key = change.key
        assert key is not None
        if change.op is Op.DELETE_PARTITION:
            self._delete(key, PartitionState(change.deletion))
        elif change.op is Op.DELETE_RANGE:
            assert change.start is not None
            assert change.end is not None
            assert change.deletion is not None
            start, end = range_limits(self.table, change.start, change.end)
            self._delete(key, PartitionState(None, flatten([RangeDeletion(start, end, change.deletion)])))
        else:
            place = key, None if change.static else clustering_key(self.table, change.clustering or ())
            state, said = self.rows.setdefault(place, RowState()), state_of(change)
            self._note_ties(key, state, said)
            state.absorb(said)

    def _note_ties(self, key: bytes, state: RowState, said: RowState) -> None:
        names = {column.name_bytes: column.name for column in self.table.columns}
        for name, column in said.columns.items():
            known = state.columns[name].cells if name in state.columns else {}
            for at, cell in column.cells.items():
                if at in known and known[at] != cell and replace(known[at], path=cell.path) == cell and name in names:
                    self.ties.add((key, names[name]))

    def _delete(self, key: bytes, deleted: PartitionState) -> None:
        self.partitions[key] = merge_partitions(self.partitions.get(key, NOTHING_DELETED), deleted)

    def at(self, now: int) -> dict[Place, Row]:
        """The rows that SELECT answers at `now`, seconds since the epoch: all columns but those of the key."""
        shown: dict[Place, Row] = {}
        statics: dict[bytes, Row] = {}
        for place in self.rows:
            row = self._row(place, now)
            if row is not None:
                if place[1] is None:
                    statics[place[0]] = row
                else:
                    shown[place] = row
        none = {column.name: _NULL for column in self.table.columns}
        partitions = {key for key, _ in shown}
        result = {place: {**none, **statics.get(place[0], {}), **row} for place, row in shown.items()}
        for key, static in statics.items():
            if key not in partitions:
                result[key, None] = {**none, **static}
        return result

    def covering(self, place: Place) -> Deletion | None:
        return self.partitions.get(place[0], NOTHING_DELETED).covering(place[1])

    def _row(self, place: Place, now: int) -> Row | None:
        state = RowState()
        state.absorb(self.rows[place])
        covering = self.covering(place)
        if covering is not None:
            state.shadow(covering)
        dropped = {drop.column.name_bytes: drop.dropped_at for drop in self.table.dropped}
        marker = state.marker
        there = marker is not None and (marker.expires is None or now < marker.expires)
        row: Row = {}
        for column in self.table.static if place[1] is None else self.table.regular:
            cells = _live(state.columns.get(column.name_bytes), dropped.get(column.name_bytes), now)
            if cells:
                there = True
                row[column.name] = _shown(column.type, cells, now)
        return row if there else None


def _live(column: ColumnState | None, dropped_at: int | None, now: int) -> dict[bytes | None, CellState]:
    if column is None:
        return {}
    floor = None if dropped_at is None else Deletion(dropped_at, 0)
    if column.counter and None in column.cells:
        return {}  # the tombstone of a counter
    return {
        path: cell
        for path, cell in column.cells.items()
        if cell.value is not None and not covers(floor, cell.written) and (cell.expires is None or now < cell.expires)
    }


def _shown(cql_type: CqlType, cells: Mapping[bytes | None, CellState], now: int) -> Shown:
    if cql_type.kind == "counter":
        return total([path for path in cells if path is not None]).to_bytes(8, "big", signed=True), None, None
    return _many(cql_type, cells, now) if cql_type.multicell else _one(cells[None], now)


def _one(cell: CellState, now: int) -> Shown:
    left = None if cell.ttl is None or cell.expires is None else (cell.expires - now).to_bytes(4, "big", signed=True)
    return cell.value, cell.written.to_bytes(8, "big", signed=True), left


def _many(cql_type: CqlType, cells: Mapping[bytes | None, CellState], now: int) -> Shown:
    """A multi-cell value as CQL sends it: elements in their order, and lists of their times."""
    if cql_type.kind == "udt":
        paths: list[bytes] = [at.to_bytes(2, "big") for at in range(len(cql_type.args))]
        shown = [_one(cells[path], now) if path in cells else _NULL for path in paths]
        # Fields behind the last that is there are left out of the value, not of the times.
        value = b"".join(_sized(item[0]) for item in shown)
        return value, _listed([item[1] for item in shown]), _listed([item[2] for item in shown])
    compared = _TIME_UUID if cql_type.kind == "list" else cql_type.args[0]
    placed = [(key or b"" if cell.path is None else cell.path, cell) for key, cell in cells.items()]
    placed.sort(key=lambda item: sortable(compared, item[0], False))
    paths = [path for path, _ in placed]
    shown = [_one(cell, now) for _, cell in placed]
    elements = [item[0] for item in shown] if cql_type.kind == "list" else list(paths)
    if cql_type.kind == "map":
        elements = [part for path, item in zip(paths, shown, strict=True) for part in (path, item[0])]
    value = len(paths).to_bytes(4, "big") + b"".join(map(_sized, elements))
    return value, _listed([item[1] for item in shown]), _listed([item[2] for item in shown])


def _listed(values: list[bytes | None]) -> bytes:
    return len(values).to_bytes(4, "big") + b"".join(map(_sized, values))


def _sized(value: bytes | None) -> bytes:
    return (-1).to_bytes(4, "big", signed=True) if value is None else len(value).to_bytes(4, "big") + value
