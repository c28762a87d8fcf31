"""The rows of a batch that take the merge's fast path, as columns: of states, and of visible rows.

It is all that is computed for such a row, so it is compiled. The others are for `merge.partition`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from tailrace_schemas.change import Change
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import partition, token
from tailrace_spark.merge.batch_changes import RowChanges
from tailrace_spark.merge.row import UNCHANGED, FastRow, ShownRows, fast_insert, fast_merge
from tailrace_spark.merge.stored_row import ROW, RowKey
from tailrace_spark.rowstate.codec import decode_state
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.plain import PlainRow
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.arrow.change_columns import ValueColumn

_LONG_AGO: Final = -(2**63) - 1


def bucket_of(key: bytes, buckets: int) -> int:
    """The bucket of a partition, 0 to `buckets` - 1: equal shares of the ring, in its order, as Kafka partitions are.

    So a Kafka partition's rows are in buckets of their own where `buckets` is a multiple of the number of Kafka
    partitions (contracts.md 4).
    """
    return partition(token(key), buckets)


class StoredRows:
    """Rows of a state table, a list for each column; `at` tells the place of each.

    `written_as` has the clustering columns of all rows, one behind the other, from `starts` of a row to the next's.
    """

    def __init__(
        self,
        keys: list[bytes],
        clusterings: list[bytes],
        states: list[bytes],
        generations: list[int | None],
        streams: list[bytes | None],
        expiries: list[int | None],
        starts: list[int],
        written_as: list[bytes | None],
    ) -> None:
        self.keys = keys
        self.clusterings = clusterings
        self.states = states
        self.generations = generations
        self.streams = streams
        self.expiries = expiries
        self.starts = starts
        self.written_as = written_as
        self.at: dict[RowKey, int] = {
            row_key: index for index, row_key in enumerate(zip(keys, clusterings, strict=True))
        }

    def clustering_of(self, row: int) -> Clustering:
        """A row's clustering columns as they were written."""
        return tuple(self.written_as[self.starts[row] : self.starts[row + 1]])

    def intricate(self, now: int) -> set[bytes]:
        """The keys of partitions of which more is known than rows, or where something reads otherwise by `now`."""
        keys: set[bytes] = set()
        for key, clustering, expiry in zip(self.keys, self.clusterings, self.expiries, strict=True):
            if clustering < ROW or (expiry is not None and expiry <= now):
                keys.add(key)
        return keys


class _VisibleColumn:
    """A column, and when a column of its name was last dropped: cells written until then are no data of it."""

    def __init__(self, column: ValueColumn, dropped_at: int) -> None:
        self.column = column
        self.dropped_at = dropped_at


class VisibleRowColumns:
    """Visible rows, column by column: the key columns, then the others, then the row keys."""

    def __init__(self, table: Table, rows: int, shown_rows: ShownRows | None = None) -> None:
        """Of so many rows at the most, those of `shown_rows` alone."""
        self._shown_rows = shown_rows
        self.keys: list[ValueColumn] = [ValueColumn(column, rows) for column in table.key]
        self.columns: list[ValueColumn] = [ValueColumn(column, rows) for column in table.regular]
        self.row_keys: list[RowKey] = []
        self._key_types = tuple(column.type for column in table.partition_key)
        dropped = {drop.column.name_bytes: drop.dropped_at for drop in table.dropped}
        self._by_name: dict[bytes, _VisibleColumn] = {
            column.name_bytes: _VisibleColumn(values, dropped.get(column.name_bytes, _LONG_AGO))
            for column, values in zip(table.regular, self.columns, strict=True)
            if not values.multicell
        }

    @property
    def rows(self) -> int:
        """How many rows are in it."""
        return len(self.row_keys)

    def add(self, row_key: RowKey, clustering: Clustering, row: FastRow) -> bool:
        """Add a row where readers see it; whether they do. Raises DecodeError for what is no value of its type."""
        cells, change, index = row.cells, row.change, len(self.row_keys)
        live = False
        if cells is not None:
            live = self._put_cells(index, cells)
        elif change is not None:
            live = self._put_change(index, change, row.newest)
        if live and self._shown_rows is not None and not self._shows(self._shown_rows, row):
            self._clear(index)  # the next row takes this place
            live = False
        if live:
            self._put_key(index, row_key, clustering)
        return live

    def _shows(self, shown_rows: ShownRows, row: FastRow) -> bool:
        if row.cells is not None:
            return shown_rows.shows_cells(row.cells)
        return row.change is not None and shown_rows.shows_change(row.change, row.newest)

    def _clear(self, index: int) -> None:
        for column in self.columns:
            column.values[index] = None

    def _put_cells(self, index: int, cells: PlainRow) -> bool:
        live = cells.marker is not None
        for column in range(len(cells.names)):
            live = self._put(index, cells.names[column], cells.times[column], cells.values[column]) or live
        return live

    def _put_change(self, index: int, change: Change, written: int) -> bool:
        live = change.marker is not None
        for cell in change.cells:
            live = self._put(index, cell.column.name_bytes, written, cell.value or b"") or live
        return live

    def _put(self, row: int, name: bytes, written: int, value: bytes) -> bool:
        """Whether that is a cell of the table."""
        visible = self._by_name.get(name)
        if visible is None or written <= visible.dropped_at:
            return False
        visible.column.show(row, value)
        return True

    def _put_key(self, row: int, row_key: RowKey, clustering: Clustering) -> None:
        column = 1
        if len(self._key_types) == 1:
            self.keys[0].show(row, row_key[0])
        else:
            column = 0
            for value in split_key(self._key_types, row_key[0]):
                self.keys[column].show(row, value)
                column += 1
        for written_as in clustering:
            if written_as is not None:
                self.keys[column].show(row, written_as)
            column += 1
        self.row_keys.append(row_key)


def cut(data: bytes, offsets: list[int]) -> list[bytes]:
    """The parts of some bytes: one from each of these places to the next."""
    return [data[offsets[index] : offsets[index + 1]] for index in range(len(offsets) - 1)]


class FastRows:
    """Rows that the fast path added or changed: a list for each column of their states, and their visible rows.

    `places` has, for each visible row, the index of its state. `hidden` rows are stored and not visible.
    """

    def __init__(self, table: Table, buckets: int, rows: int, shown_rows: ShownRows | None = None) -> None:
        """For at most so many rows, of which those of `shown_rows` are visible."""
        self.keys: list[bytes] = []
        self.clusterings: list[bytes] = []
        self.newest: list[int] = []
        self.states: list[bytes] = []
        self.generations: list[int | None] = []
        self.streams: list[bytes | None] = []
        self.written_as: list[Clustering] = []
        self.buckets: list[int] = []
        self.visible = VisibleRowColumns(table, rows, shown_rows)
        self.places: list[int] = []
        self.hidden: list[RowKey] = []
        self._of = buckets

    def state(self, row: int) -> tuple[RowState, Clustering]:
        """The state of a visible row, and its clustering columns as they were written."""
        index = self.places[row]
        return decode_state(self.states[index]), self.written_as[index]

    def merge(
        self,
        rows: Iterable[tuple[RowKey, RowChanges]],
        stored: StoredRows,
        intricate: Collection[bytes],
    ) -> dict[RowKey, RowChanges]:
        """Merge the changes of rows with their stored rows; gives those that are not for the fast path.

        Rows of `intricate` partitions are among these. It may be called again for further rows. Raises DecodeError for
        what is no value of its type.
        """
        return {
            row_key: changes
            for row_key, changes in rows
            if row_key[0] in intricate or not self._merge(row_key, changes, stored)
        }

    def _merge(self, row_key: RowKey, changes: RowChanges, stored: StoredRows) -> bool:
        index = stored.at.get(row_key, -1)
        if index < 0:
            row, clustering = fast_insert(changes, None), changes.clustering
            if row is None:
                return False
        else:
            row = fast_merge(changes, stored.states[index], stored.generations[index], stored.streams[index], None)
            if row is None:
                return False
            if row is UNCHANGED:
                return True
            clustering = stored.clustering_of(index)
        self._add_state(row_key, clustering, row)
        if self.visible.add(row_key, clustering, row):
            self.places.append(len(self.keys) - 1)
        elif index >= 0:
            self.hidden.append(row_key)
        return True

    def _add_state(self, row_key: RowKey, clustering: Clustering, row: FastRow) -> None:
        key, assignment = row_key[0], row.assignment
        self.keys.append(key)
        self.clusterings.append(row_key[1])
        self.newest.append(row.newest)
        self.states.append(row.encoded)
        self.generations.append(None if assignment is None else assignment[0])
        self.streams.append(None if assignment is None else assignment[1])
        self.written_as.append(clustering)
        self.buckets.append(bucket_of(key, self._of))
