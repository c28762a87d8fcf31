"""What SELECT shows of a state: live cells as plain values, with their times; and images before and after changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from operator import eq
from typing import Any, Final

from tailrace_schemas.change import EXPIRED_TTL, Change, Deletion, Marker, Op
from tailrace_schemas.clustering import clustering_key
from tailrace_schemas.cql.json_value import plain
from tailrace_schemas.cql.order import sortable
from tailrace_schemas.cql.types import CqlType, parts
from tailrace_schemas.cql.values import codec
from tailrace_schemas.table import Column, Table
from tailrace_spark.rowstate.cells import CellState, covers, total
from tailrace_spark.rowstate.deletions import stronger
from tailrace_spark.rowstate.partition import Clustering, ClusteringBytes, Partition, PartitionRow
from tailrace_spark.rowstate.row import ColumnState, RowState

Cells = Mapping[bytes | None, CellState]
"""The live cells of a column, never none of them; each has a value."""
Times = tuple[int, int | None]
"""WRITETIME in microseconds and TTL in seconds that are left, None where a cell does not expire."""
ColumnTimes = Times | list[Times | None]
"""Those of a simple column, or of a multi-cell one's elements: in the order of its value, a user type's by field."""
Values = dict[str, Any]
"""A visible row's columns that are not null, but those of the key, as `VisibleColumns.of` gives them."""
_FLOATS: Final = frozenset({"float", "double"})


@dataclass(frozen=True, slots=True)
class _ColumnPlan:
    """Reads one column: its value, and its cells in the order of the value (None: counters have no times).

    `equals`: whether two values are the same to a reader.
    """

    name: str
    name_bytes: bytes
    multicell: bool
    counter: bool
    dropped_at: int | None
    value: Callable[[Cells], Any]
    elements: Callable[[Cells], list[CellState | None]]
    equals: Callable[[Any, Any], bool]


class VisibleColumns:
    """The columns of one kind of row, as one definition of the table shows them.

    `static` chooses between static and regular columns. Cells of columns that the table does not have, and those
    written before their column was last dropped, are not data.
    """

    def __init__(self, table: Table, *, static: bool = False) -> None:
        self.columns: tuple[Column, ...] = table.static if static else table.regular
        self._static = static
        dropped = {drop.column.name_bytes: drop.dropped_at for drop in table.dropped}
        self._plan = [_plan_of(column, dropped.get(column.name_bytes)) for column in self.columns]

    def values(self, state: RowState, covering: Deletion | None = None, now: int | None = None) -> list[Any] | None:
        """The values of `columns`, in order, None for null; or None where SELECT returns no row.

        `covering` is the strongest partition or range deletion, or truncation, over the row. `now`, in seconds since
        the epoch, hides what has expired by then; None hides none of it. Values are those of
        tailrace_schemas.cql.values: a list or set is a list, a map a list of {key, value}, a user type a dict. A
        counter is the sum of its shards, an int. Raises DecodeError where a value is none of its type.
        """
        live = self._live(state, covering, now)
        if live is None:
            return None
        return [None if cells is None else plan.value(cells) for plan, cells in zip(self._plan, live, strict=True)]

    def of(self, state: RowState, covering: Deletion | None = None, now: int | None = None) -> dict[str, Any] | None:
        """`values` by the names of the columns, those that are not null."""
        values = self.values(state, covering, now)
        if values is None:
            return None
        return {plan.name: value for plan, value in zip(self._plan, values, strict=True) if value is not None}

    def times(self, state: RowState, covering: Deletion | None = None, now: int = 0) -> dict[str, ColumnTimes] | None:
        """WRITETIME and TTL of what `of` shows at the same moment, by column; None where SELECT returns no row.

        A value of no bytes, which `of` takes for null, has its times too, as in CQL. Counters have none.
        """
        live = self._live(state, covering, now)
        if live is None:
            return None
        column_times: dict[str, ColumnTimes] = {}
        for plan, cells in zip(self._plan, live, strict=True):
            if cells is None or plan.counter:
                continue
            if plan.multicell:
                column_times[plan.name] = [None if cell is None else _times(cell, now) for cell in plan.elements(cells)]
            else:
                column_times[plan.name] = _times(cells[None], now)
        return column_times

    def differing(self, old: Values, new: Values) -> tuple[str, ...]:
        """The columns of which two visible rows have other values, by name."""
        names = [plan.name for plan in self._plan if not plan.equals(old.get(plan.name), new.get(plan.name))]
        return tuple(names)

    def _live(self, state: RowState, covering: Deletion | None, now: int | None) -> list[Cells | None] | None:
        """The live cells of each column, None where it has none; or None where SELECT returns no row."""
        # A row exists while its marker or any of its cells is live (Row.hasLiveData); static rows have no marker.
        active = stronger(state.deletion, covering)
        exists = not self._static and _marker_lives(state.marker, active, now)
        live: list[Cells | None] = []
        for plan in self._plan:
            column = state.columns.get(plan.name_bytes)
            cells = None if column is None else _live(plan, column, active, now)
            exists = exists or (cells is not None and not state.strict)
            live.append(cells)
        return live if exists else None


def visible(
    state: RowState, table: Table, covering: Deletion | None = None, now: int | None = None, *, static: bool = False
) -> dict[str, Any] | None:
    """`VisibleColumns(table, static=static).of(state, covering, at)`, for one row."""
    return VisibleColumns(table, static=static).of(state, covering, now)


def _marker_lives(marker: Marker | None, active: Deletion | None, now: int | None) -> bool:
    # From `expires` on it is expired, that second included (LivenessInfo.isLive: `nowInSec < localExpirationTime`).
    if marker is None or marker.ttl == EXPIRED_TTL or covers(active, marker.written):
        return False
    return now is None or marker.expires is None or now < marker.expires


def _live(plan: _ColumnPlan, column: ColumnState, active: Deletion | None, now: int | None) -> Cells | None:
    """The live cells, if the column has any."""
    floor, dropped_at = stronger(column.deletion, active), plan.dropped_at
    live: Cells = column.cells
    for cell in column.cells.values():
        if not _lives(cell, floor, dropped_at, now):
            live = {
                path: candidate for path, candidate in column.cells.items() if _lives(candidate, floor, dropped_at, now)
            }
            break
    if not live:
        return None
    if column.counter:
        # The tombstone of a counter wins at any time (Cells.resolveCounter, CASSANDRA-7346).
        return live if plan.counter and None not in live else None
    for cell in live.values():
        if cell.value is None:
            live = {path: candidate for path, candidate in live.items() if candidate.value is not None}
            break
    # Others are cells of a dropped column of this name, simple where this one is not.
    return live if live and (None in live) is not plan.multicell else None


def _lives(cell: CellState, floor: Deletion | None, dropped_at: int | None, now: int | None) -> bool:
    """Whether a cell is neither covered nor dropped nor expired; it may be a tombstone."""
    # At the microsecond of the drop a cell is dropped too (DroppedColumn.droppedTime). That holds after the column was
    # added again.
    return not covers(floor, cell.written) and (dropped_at is None or cell.written > dropped_at) and _lasts(cell, now)


def _lasts(cell: CellState, now: int | None) -> bool:
    """Whether a cell has not expired; a tombstone stays one."""
    return now is None or cell.ttl is None or cell.expires is None or now < cell.expires


def _times(cell: CellState, now: int) -> Times:
    return cell.written, None if cell.ttl is None or cell.expires is None else cell.expires - now


@lru_cache(maxsize=4096)
def _value(cql_type: CqlType) -> Callable[[Cells], Any]:
    """A function from the live cells of a column of this type to one plain value."""
    if cql_type.kind == "counter":
        return lambda cells: total([path for path in cells if path is not None])
    if not cql_type.multicell:
        decode = codec(cql_type).decode
        return lambda cells: decode(cells[None].value or b"")
    if cql_type.kind == "udt":
        return _user_type(cql_type)
    ordered = _ordered(cql_type)
    decode = codec(cql_type.args[-1]).decode
    if cql_type.kind == "list":
        return lambda cells: [decode(cell.value or b"") for _, cell in ordered(cells)]
    if cql_type.kind == "set":
        return lambda cells: [decode(path) for path, _ in ordered(cells)]
    decode_key = codec(cql_type.args[0]).decode
    return lambda cells: [
        {"key": decode_key(path), "value": decode(cell.value or b"")} for path, cell in ordered(cells)
    ]


def _plan_of(column: Column, dropped_at: int | None) -> _ColumnPlan:
    cql_type = column.type
    counter = cql_type.kind == "counter"
    value, elements = _value(cql_type), _elements(cql_type)
    equals = eq if _FLOATS.isdisjoint([nested.kind for nested in parts((cql_type,))]) else _same_floats
    return _ColumnPlan(column.name, column.name_bytes, cql_type.multicell, counter, dropped_at, value, elements, equals)


@lru_cache(maxsize=4096)
def _elements(cql_type: CqlType) -> Callable[[Cells], list[CellState | None]]:
    """A function that puts the live cells of a column of this type in the order of its value."""
    if not cql_type.multicell:
        return lambda cells: list(cells.values())
    if cql_type.kind == "udt":
        paths = _fields(cql_type)
        return lambda cells: [cells.get(path) for path in paths]
    ordered = _ordered(cql_type)
    return lambda cells: [cell for _, cell in ordered(cells)]


def _ordered(cql_type: CqlType) -> Callable[[Cells], list[tuple[bytes, CellState]]]:
    """(path, cell) in the order of a collection's elements."""
    # A list's paths are time UUIDs in TimeUUIDType's order, not in that of their bytes.
    compared = CqlType("timeuuid") if cql_type.kind == "list" else cql_type.args[0]

    def ordered(cells: Cells) -> list[tuple[bytes, CellState]]:
        elements = [(key or b"" if cell.path is None else cell.path, cell) for key, cell in cells.items()]
        return sorted(elements, key=lambda item: sortable(compared, item[0], False))

    return ordered


def _fields(cql_type: CqlType) -> list[bytes]:
    """The paths of a multi-cell user type: its fields' numbers, as two bytes (UserType.cellPathForField)."""
    return [index.to_bytes(2, "big") for index in range(len(cql_type.args))]


def _user_type(cql_type: CqlType) -> Callable[[Cells], Any]:
    decoders = [codec(arg).decode for arg in cql_type.args]
    fields = list(zip(_fields(cql_type), cql_type.fields, decoders, strict=True))
    return lambda cells: {
        name: decode(cells[path].value or b"") if path in cells else None for path, name, decode in fields
    }


__all__: Final = ["Cells", "ColumnTimes", "Times", "VisibleColumns", "visible"]


class ImageOp(Enum):
    """The visible effect of changes on a row; the values are Debezium's `op`."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One row, or the static row of a partition, before and after.

    `clustering` are the row's values in key order, None for the static row. `before` is None where there was no row,
    `after` where there is none; never both. `changed` names the columns whose value differs, in the table's order: of
    a row that comes or goes all that it has. It is empty where what was written is what was there.
    """

    clustering: Clustering | None
    before: Values | None
    after: Values | None
    changed: tuple[str, ...]

    @property
    def op(self) -> ImageOp:
        """Created where there was no row, deleted where there is none after it, else updated."""
        if self.before is None:
            return ImageOp.CREATE
        return ImageOp.DELETE if self.after is None else ImageOp.UPDATE


class Images:
    """Images: what SELECT showed of a row before some changes, and what it shows after them.

    Makes the images of one table, as one definition shows it.

    All of one partition's come in order: the static row first, then rows in clustering order. A row has one if its
    state has changed and it is visible before or after. So redelivered changes make none, nor do older ones, nor
    deletions of nothing. A write of the values that a row has already makes one in which nothing changed. The `after`
    of an image is the `before` of its row's next one.

    `now` is the moment, in seconds since the epoch: without it nothing expires.
    """

    def __init__(self, table: Table) -> None:
        self._columns = VisibleColumns(table)
        self._static = VisibleColumns(table, static=True)

    def apply(
        self,
        partition: Partition,
        changes: Iterable[Change],
        *,
        now: int | None = None,
    ) -> list[Image]:
        """Merge changes into their partition; the images of the rows that they changed.

        Deletions of ranges and of the partition become deletions of the rows that are known. Raises as
        `Partition.absorb` does, and DecodeError for a value that is none of its type; then some are merged already.
        """
        # Cassandra applies a mutation's update at once: a row that it replaces is updated, not deleted and created.
        previous_rows: dict[ClusteringBytes, PartitionRow | None] = {}
        for change in changes:
            for row_key, previous in partition.absorb(change):
                previous_rows.setdefault(row_key, previous)
        return self._images(partition, previous_rows, (None, now), (None, now))

    def of_change(self, partition: Partition, change: Change, *, now: int | None = None) -> list[Image]:
        """Merge one change; its images, as a log of changes has them beside the change itself.

        A change of one row, or of the static row, has one image wherever that row is visible before or after. It has
        one too where newer data covers it, and nothing changed. A deletion of a range or of the partition has one for
        each row that it changes visibly. Raises as `apply` does.
        """
        images = self.apply(partition, [change], now=now)
        if change.op in (Op.DELETE_PARTITION, Op.DELETE_RANGE):
            return [image for image in images if _differs(image)]
        if images:
            return images
        # A copy, or a change that newer data covers, is published all the same: its image says that nothing changed
        # (docs/images.md).
        row_key = None if change.static else clustering_key(change.table, change.clustering or ())
        return self._images(partition, {row_key: partition.rows.get(row_key)}, (None, now), (None, now))

    def truncate(self, partition: Partition, erased: Deletion, *, now: int | None = None) -> list[Image]:
        """The images of rows of which a truncation takes something (`truncation.absorb`); the partition stays."""
        rows: dict[ClusteringBytes, PartitionRow | None] = dict(partition.rows)
        return [image for image in self._images(partition, rows, (None, now), (erased, now)) if _differs(image)]

    def expire(self, partition: Partition, since: int, now: int) -> list[Image]:
        """The images of a partition's rows that expiry changed later than `since` and up to `now`, both in seconds."""
        due: dict[ClusteringBytes, PartitionRow | None] = {}
        for row_key, row in partition.rows.items():
            soonest = row.state.next_expiry(partition.covering(row_key), since)
            if soonest is not None and soonest <= now:
                due[row_key] = row
        return [image for image in self._images(partition, due, (None, since), (None, now)) if _differs(image)]

    def _images(
        self, partition: Partition, rows: dict[ClusteringBytes, PartitionRow | None], before: _When, after: _When
    ) -> list[Image]:
        """The images of these rows: as they were given, and as they are in the partition now."""
        images: list[Image] = []
        for row_key in sorted(rows, key=_static_first):
            former, present = rows[row_key], partition.rows.get(row_key)
            columns = self._static if row_key is None else self._columns
            before_values, after_values = _shown(columns, former, before), _shown(columns, present, after)
            if before_values is None and after_values is None:
                continue
            existing = present or former
            clustering = None if row_key is None or existing is None else existing.clustering
            images.append(_image(columns, clustering, before_values, after_values))
        return images


_When = tuple[Deletion | None, int | None]


def _static_first(row_key: ClusteringBytes) -> tuple[bool, bytes]:
    return row_key is not None, row_key or b""


def _shown(columns: VisibleColumns, row: PartitionRow | None, when: _When) -> Values | None:
    # Only the truncation is asked for: states have nothing that their partition's deletions cover (Partition.absorb).
    return None if row is None else columns.of(row.state, *when)


def _image(
    columns: VisibleColumns, clustering: Clustering | None, before: Values | None, after: Values | None
) -> Image:
    changed = columns.differing(before or {}, after or {})
    return Image(clustering=clustering, before=before, after=after, changed=changed)


def _same_floats(old: object, new: object) -> bool:
    """Whether values are the same to the bit: -0.0 is equal to 0.0, and no NaN to itself."""
    return repr(plain(old)) == repr(plain(new))


def _differs(image: Image) -> bool:
    return bool(image.changed) or image.op is not ImageOp.UPDATE
