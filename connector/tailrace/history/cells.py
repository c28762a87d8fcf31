"""One row of `system_schema`, cell by cell: what of several writes Cassandra takes, and what it has deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tailrace.commitlog.model import PartitionUpdate, RangeMarker, Row
from tailrace_schemas.cql.values import codec
from tailrace_schemas.definitions import SchemaRow

NEVER: Final = -(1 << 63)
"""Before every write time."""

_COLUMNS: Final = frozenset(
    {"id", "flags", "cdc", "column_name_bytes", "kind", "position", "clustering_order", "type", "dropped_time"}
    | {"field_names", "field_types", "base_table_name"}
)
"""The columns that define something (tables_from_rows); options and comments do not."""

_Rank = tuple[int, bool, bytes]
"""Of two cells the one with the larger rank counts: write time, then tombstones, then bytes."""


@dataclass(frozen=True, slots=True)
class _Cell:
    rank: _Rank
    value: Any = None

    @property
    def live(self) -> bool:
        return not self.rank[1]


@dataclass(frozen=True, slots=True)
class SchemaCells:
    """A row: write times of its newest deletion and of its marker (NEVER: none), and its cells by column."""

    deleted: int = NEVER
    marker: int = NEVER
    cells: Mapping[str, _Cell] = field(default_factory=dict)

    @classmethod
    def of_row(cls, row: SchemaRow, written: int = NEVER + 1) -> SchemaCells:
        """A row known from elsewhere than the log; without a write time as if it had always been there."""
        return cls(NEVER, written, {name: _Cell((written, False, b""), value) for name, value in row.items()})

    @property
    def live(self) -> bool:
        """Whether the row is there."""
        return self.marker > self.deleted or any(cell.live for cell in self._seen())

    @property
    def written(self) -> int:
        """The newest write time in it."""
        return max(self.marker, self.deleted, *(cell.rank[0] for cell in self.cells.values()), NEVER)

    def values(self) -> dict[str, Any]:
        """Its columns that have a value."""
        return {name: cell.value for name, cell in self.cells.items() if cell.live and cell.rank[0] > self.deleted}

    def deleted_by(self, written: int, floor: int) -> SchemaCells:
        """After a deletion at this time; one at or below `floor` is no news."""
        if written <= max(self.deleted, floor):
            return self
        return SchemaCells(written, self.marker, self.cells)

    def _seen(self) -> Iterator[_Cell]:
        return (cell for cell in self.cells.values() if cell.rank[0] > self.deleted)


def merged(base: SchemaCells | None, row: Row, deleted: int, floor: int) -> SchemaCells:
    """A known row and one of the log, under the partition's and ranges' newest deletion; Cells.reconcile.

    What the log wrote at or below `floor` is contained in what is known. Raises DecodeError for bytes that are no
    value of their column.
    """
    current = base or SchemaCells()
    if row.deletion is not None:
        deleted = max(deleted, row.deletion.written)
    marker = row.marker.written if row.marker is not None and row.marker.written > floor else NEVER
    cells = dict(current.cells)
    for cell in row.cells:
        if cell.column.name not in _COLUMNS:
            continue
        value = None if cell.value is None else codec(cell.column.type).decode(cell.value)
        incoming = _Cell((cell.written, cell.value is None, cell.value or b""), value)
        existing = cells.get(cell.column.name)
        if cell.written > floor and (existing is None or incoming.rank > existing.rank):
            cells[cell.column.name] = incoming
    return SchemaCells(
        max(current.deleted, deleted if deleted > floor else NEVER),
        max(current.marker, marker),
        cells,
    )


@dataclass(frozen=True, slots=True)
class Deletions:
    """What of one partition of one table is deleted: the whole at a write time, and ranges of it."""

    partition: int = NEVER
    ranges: tuple[tuple[RangeMarker, RangeMarker, int], ...] = ()

    def __bool__(self) -> bool:
        return self.partition > NEVER or bool(self.ranges)

    def joined(self, other: Deletions) -> Deletions:
        """Both."""
        if not other:
            return self
        return Deletions(max(self.partition, other.partition), tuple(dict.fromkeys((*self.ranges, *other.ranges))))

    def newest(self, clustering: tuple[str, ...]) -> int:
        """The write time of the newest deletion over a row, NEVER where there is none. The order is ascending."""
        values = tuple(value.encode() for value in clustering)
        times = [written for start, end, written in self.ranges if _begins(start, values) and _ends(end, values)]
        return max(self.partition, *times, NEVER)


def deletions_of(update: PartitionUpdate) -> Deletions:
    """The deletions of an update that are not of one row."""
    ranges: list[tuple[RangeMarker, RangeMarker, int]] = []
    opened: RangeMarker | None = None
    for item in update.items:
        if not isinstance(item, RangeMarker):
            continue
        if opened is not None and opened.open is not None and item.close is not None:
            ranges.append((opened, item, opened.open.written))
        opened = item if item.open is not None else None
    return Deletions(NEVER if update.deletion is None else update.deletion.written, tuple(ranges))


# ClusteringPrefix.Kind: of a bound that is a row's prefix, whether the row stands behind it.
_BEHIND_ITSELF: Final = {0: True, 1: True, 2: True, 5: False, 6: False, 7: False}


def _begins(marker: RangeMarker, values: tuple[bytes, ...]) -> bool:
    """Whether a row stands behind the bound."""
    bound = tuple(value or b"" for value in marker.values)
    prefix = values[: len(bound)]
    return _BEHIND_ITSELF[marker.kind] if prefix == bound else prefix > bound


def _ends(marker: RangeMarker, values: tuple[bytes, ...]) -> bool:
    return not _begins(marker, values)
