"""Rows as they are compared: digests of buckets of them, then of each, and how two sides of a row differ. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from operator import attrgetter
from typing import Final

from tailrace_common.sections.template import fit
from tailrace_schemas.change import Change, Deletion
from tailrace_schemas.table import Table
from tailrace_schemas.topics import MAX_NAME
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId
from tailrace_spark.merge.stored_row import STATIC, RowKey
from tailrace_spark.rowstate.cells import CellState, covers
from tailrace_spark.rowstate.row import ColumnState, RowState
from tailrace_spark.rowstate.visible import VisibleColumns
from tailrace_spark.snapshot.ranges import TokenRange, parts

Digest = tuple[int, int]
"""How many rows, and the sum of their digests modulo 2^128: the rows' order does not matter."""
NO_ROWS: Final[Digest] = (0, 0)
_MODULUS: Final = 1 << 128


@dataclass(frozen=True, slots=True)
class Buckets:
    """Ranges that are compared as one each, in the order of their tokens; they do not overlap."""

    ranges: tuple[TokenRange, ...]
    _ends: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", tuple([token_range.end for token_range in self.ranges]))

    def of(self, token: int) -> int | None:
        """The number of a token's bucket; None where it is in none."""
        index = bisect_left(self._ends, token)
        return index if index < len(self.ranges) and self.ranges[index].start < token else None


def buckets_of(ranges: Iterable[TokenRange], splits: int) -> Buckets:
    """Each range cut into so many buckets, as far as it has tokens for them."""
    ordered = sorted(ranges, key=attrgetter("start"))
    return Buckets(tuple(bucket for each in ordered for bucket in parts(each, min(splits, each.width))))


def with_rows(digest: Digest, count: int, total: int) -> Digest:
    """A digest with so many rows more, whose own digests have this sum."""
    return digest[0] + count, (digest[1] + total) % _MODULUS


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One side of a row: a digest of each column's value, None for null, and its newest write time that is known.

    `shown`: the key's columns, as that side shows them, in JSON's values.
    """

    columns: tuple[bytes | None, ...]
    newest: int
    shown: tuple[object, ...]


class RowDigests:
    """Makes digests of the visible rows of a table, regular and static ones."""

    def __init__(self, table: Table) -> None:
        self._visible = VisibleColumns(table), VisibleColumns(table, static=True)

    def columns(self, row_key: RowKey, state: RowState, now: int) -> tuple[bytes | None, ...] | None:
        """A digest of each column's value; None where SELECT returns no row at a time, in seconds since the epoch."""
        values = self._visible[row_key[1] == STATIC].values(state, None, now)
        if values is None:
            return None
        return tuple(
            [None if value is None else blake2b(repr(value).encode(), digest_size=12).digest() for value in values]
        )


def row_digest(row_key: RowKey, columns: tuple[bytes | None, ...]) -> int:
    """128 bits that tell a row with its values."""
    key, clustering = row_key
    digest = blake2b(len(key).to_bytes(4, "big"), digest_size=16)
    digest.update(key + len(clustering).to_bytes(4, "big") + clustering)
    digest.update(b"".join([b"\x00" if column is None else b"\x01" + column for column in columns]))
    return int.from_bytes(digest.digest(), "big")


class Kind(Enum):
    """How a row differs."""

    MISSING = "missing"
    """The sink lacks it."""
    EXTRA = "extra"
    """Only the sink has it."""
    DIFFERENT = "different"
    """Some of its columns differ."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs: where it is, how, in which columns, and the newest write time that the source shows."""

    row_key: RowKey
    kind: Kind
    columns: tuple[str, ...]
    shown: tuple[object, ...]
    newest: int

    @property
    def static(self) -> bool:
        """Whether it is a partition's static row."""
        return self.row_key[1] == STATIC


def differences(
    table: Table, source: Mapping[RowKey, ComparedRow], target: Mapping[RowKey, ComparedRow]
) -> dict[RowKey, Difference]:
    """How the rows of both sides differ, by key."""
    regular, static = [column.name for column in table.regular], [column.name for column in table.static]
    different: dict[RowKey, Difference] = {}
    for row_key in source.keys() | target.keys():
        source_row, target_row = source.get(row_key), target.get(row_key)
        names = static if row_key[1] == STATIC else regular
        if source_row is None:
            assert target_row is not None  # noqa: S101 - one of both has it
            different[row_key] = Difference(row_key, Kind.EXTRA, (), target_row.shown, 0)
        elif target_row is None:
            different[row_key] = Difference(row_key, Kind.MISSING, (), source_row.shown, source_row.newest)
        elif source_row.columns != target_row.columns:
            columns = [
                name
                for name, source_digest, target_digest in zip(
                    names, source_row.columns, target_row.columns, strict=False
                )
                if source_digest != target_digest
            ]
            different[row_key] = Difference(
                row_key, Kind.DIFFERENT, tuple(columns), source_row.shown, source_row.newest
            )
    return different


def removal(source: RowState | None, target: RowState, now: int) -> RowState:
    """What takes away from a sink's row what only the sink has: tombstones with the write times of what goes.

    So nothing that is written later is covered. Of a row that the source lacks, it is a deletion of the row. `now` is
    in seconds since the epoch.
    """
    if source is None:
        newest = 0 if target.newest is None else target.newest.written
        return RowState(deletion=Deletion(newest, now))
    columns: dict[bytes, ColumnState] = {}
    for name, column in target.columns.items():
        read_column = source.columns.get(name)
        if column.counter or (read_column is not None and read_column.deletion is not None):
            continue  # a value that was read whole replaces the older one
        paths = () if read_column is None else read_column.cells
        cells: dict[bytes | None, CellState] = {
            path: CellState(cell.written, None, now, None, cell.path)
            for path, cell in column.cells.items()
            if cell.value is not None and path not in paths and not covers(column.deletion, cell.written)
        }
        if cells:
            columns[name] = ColumnState(cells=cells)
    return RowState(columns=columns)


def repair_of(table: Table, changes: Iterable[Change]) -> Piece:
    """Changes that repair a sink's table, as it takes them in; their topic is none, and as short as Kafka's."""
    topic = fit(f"repair of {table}", MAX_NAME)
    return Piece(tuple(Delivered(RecordId(topic, 0, offset), change) for offset, change in enumerate(changes)))
