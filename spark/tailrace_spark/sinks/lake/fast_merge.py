"""The rows of a batch whose states need no objects (rowstate.plain), merged into columns: of states, and of what shows.

It is all that is computed for such a row, so it is compiled. What is left is `partition_merge`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final
from zlib import crc32

from tailrace_schemas.change import Change, Deletion
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.errors import TruncatedError
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.merge.batch_changes import Clustering, RowChanges
from tailrace_spark.merge.state_keys import ROW
from tailrace_spark.merge.stored_row import RowKey, assignment_of
from tailrace_spark.rowstate.codec import decode_state
from tailrace_spark.rowstate.plain import PlainRow, plain_merge, plain_newest, plain_state, plain_time
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.arrow.change_columns import ValueColumn

_LONG_AGO: Final = -(2**63) - 1


def bucket_of(key: bytes, buckets: int) -> int:
    """The bucket of a partition, for ever."""
    return crc32(key) % buckets


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
            row_key: place for place, row_key in enumerate(zip(keys, clusterings, strict=True))
        }

    def clustering_of(self, place: int) -> Clustering:
        """A row's clustering columns as they were written."""
        return tuple(self.written_as[self.starts[place] : self.starts[place + 1]])

    def intricate(self, at: int) -> set[bytes]:
        """The keys of partitions of which more is known than rows, or where something reads otherwise by `at`."""
        found: set[bytes] = set()
        for key, clustering, expiry in zip(self.keys, self.clusterings, self.expiries, strict=True):
            if clustering < ROW or (expiry is not None and expiry <= at):
                found.add(key)
        return found


class _ShownColumn:
    """A column, and when one of its name was dropped last: what was written until then is not its."""

    def __init__(self, column: ValueColumn, dropped_at: int) -> None:
        self.column = column
        self.dropped_at = dropped_at


class ShownColumns:
    """What a table shows of rows, column by column: its key columns, then its others, then what names the row."""

    def __init__(self, table: Table, rows: int) -> None:
        """Of so many rows at the most."""
        self.keys: list[ValueColumn] = [ValueColumn(column, rows) for column in table.key]
        self.columns: list[ValueColumn] = [ValueColumn(column, rows) for column in table.regular]
        self.row_keys: list[RowKey] = []
        self._key_types = tuple(column.type for column in table.partition_key)
        dropped = {drop.column.name_bytes: drop.dropped_at for drop in table.dropped}
        self._by_name: dict[bytes, _ShownColumn] = {
            column.name_bytes: _ShownColumn(place, dropped.get(column.name_bytes, _LONG_AGO))
            for column, place in zip(table.regular, self.columns, strict=True)
            if not place.multicell
        }

    @property
    def rows(self) -> int:
        """How many rows are in it."""
        return len(self.row_keys)

    def add(self, row_key: RowKey, clustering: Clustering, row: PlainRow) -> bool:
        """Show a row; False: it is none. Raises DecodeError for what is no value of its type."""
        there, at = row.marker is not None, len(self.row_keys)
        for number in range(len(row.names)):
            there = self._put(at, row.names[number], row.times[number], row.values[number]) or there
        return self._named(at, row_key, clustering, there)

    def add_new(self, row_key: RowKey, clustering: Clustering, change: Change, written: int) -> bool:
        """Show a row of which one plain change is all that is known."""
        there, at = change.marker is not None, len(self.row_keys)
        for cell in change.cells:
            there = self._put(at, cell.column.name_bytes, written, cell.value or b"") or there
        return self._named(at, row_key, clustering, there)

    def _put(self, row: int, name: bytes, written: int, value: bytes) -> bool:
        """Whether that is a cell of the table."""
        found = self._by_name.get(name)
        if found is None or written <= found.dropped_at:
            return False
        found.column.show(row, value)
        return True

    def _named(self, row: int, row_key: RowKey, clustering: Clustering, there: bool) -> bool:
        if not there:
            return False
        place = 1
        if len(self._key_types) == 1:
            self.keys[0].show(row, row_key[0])
        else:
            place = 0
            for part in split_key(self._key_types, row_key[0]):
                self.keys[place].show(row, part)
                place += 1
        for value in clustering:
            if value is not None:
                self.keys[place].show(row, value)
            place += 1
        self.row_keys.append(row_key)
        return True


def mergeable_as_plain(table: Table) -> bool:
    """Whether rows of a table may be merged so: they show nothing of others of their partitions, and no counters."""
    return not table.static and all(column.type.kind != "counter" for column in table.regular)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The parts of some bytes: one from each of these places to the next."""
    return [data[places[number] : places[number + 1]] for number in range(len(places) - 1)]


class PlainRows:
    """Rows that plain changes made or changed: their states, a list for each column; what is `shown`, and `hidden`.

    `places` tells for each row that is shown which of the states is its.
    """

    def __init__(self, table: Table, buckets: int, rows: int) -> None:
        """Of so many rows at the most."""
        self.keys: list[bytes] = []
        self.clusterings: list[bytes] = []
        self.newest: list[int] = []
        self.states: list[bytes] = []
        self.generations: list[int | None] = []
        self.streams: list[bytes | None] = []
        self.written_as: list[Clustering] = []
        self.buckets: list[int] = []
        self.shown = ShownColumns(table, rows)
        self.places: list[int] = []
        self.hidden: list[RowKey] = []
        self._of = buckets

    def state(self, row: int) -> tuple[RowState, Clustering]:
        """The state of a row that is shown, and its clustering columns as they were written."""
        place = self.places[row]
        return decode_state(self.states[place]), self.written_as[place]

    def merge(
        self,
        said: Iterable[tuple[RowKey, RowChanges]],
        stored: StoredRows,
        intricate: Collection[bytes],
        erased: Deletion | None,
    ) -> dict[RowKey, RowChanges]:
        """Merge what is said of these rows with what is known of them; gives those that need more than that.

        These are rows of `intricate` partitions too. `erased`: what a truncation took away. Raises DecodeError for
        what is no value of its type. It may be called for some rows after the others.
        """
        return {
            row_key: one
            for row_key, one in said
            if row_key[0] in intricate or not self._merge(row_key, one, stored, erased)
        }

    def _merge(self, row_key: RowKey, said: RowChanges, stored: StoredRows, erased: Deletion | None) -> bool:
        alone = said.alone
        if alone is None:
            return False
        place = stored.at.get(row_key, -1)
        if place < 0:
            return self._add(row_key, said.clustering, alone, erased)
        change, came = alone.change, alone.assignment
        written = plain_time(change)
        if written is None or (erased is not None and written <= erased.written):
            return False
        generation, stream = stored.generations[place], stored.streams[place]
        before = stored.states[place]
        same = _is(came, generation, stream)
        try:
            newest = plain_newest(before)
            if same and newest == written and _says(change, before):
                return True
            merged = plain_merge(before, change, written)
        except TruncatedError:
            return False  # which says more of it
        if merged is None:
            return False
        if not same and not (newest < written or (newest == written and _wins(came, generation, stream))):
            came, same = assignment_of(generation, stream), True
        if same and merged.encoded == before:
            return True
        clustering = stored.clustering_of(place)
        self._keep(row_key, clustering, merged.newest, merged.encoded, came)
        if self.shown.add(row_key, clustering, merged):
            self.places.append(len(self.keys) - 1)
        else:
            self.hidden.append(row_key)
        return True

    def _add(self, row_key: RowKey, clustering: Clustering, alone: Delivered, erased: Deletion | None) -> bool:
        """Keep a row of which nothing was known."""
        plain = plain_state(alone.change)
        if plain is None or (erased is not None and plain[0] <= erased.written):
            return False
        written, encoded = plain
        self._keep(row_key, clustering, written, encoded, alone.assignment)
        if self.shown.add_new(row_key, clustering, alone.change, written):
            self.places.append(len(self.keys) - 1)
        return True

    def _keep(
        self, row_key: RowKey, clustering: Clustering, newest: int, state: bytes, assignment: Assignment | None
    ) -> None:
        key = row_key[0]
        self.keys.append(key)
        self.clusterings.append(row_key[1])
        self.newest.append(newest)
        self.states.append(state)
        self.generations.append(None if assignment is None else assignment[0])
        self.streams.append(None if assignment is None else assignment[1])
        self.written_as.append(clustering)
        self.buckets.append(bucket_of(key, self._of))


def _says(change: Change, state: bytes) -> bool:
    """Whether a state is that of a plain change alone."""
    plain = plain_state(change)
    return plain is not None and plain[1] == state


def _is(assignment: Assignment | None, generation: int | None, stream: bytes | None) -> bool:
    """Whether that is the assignment of these columns; it is not known where one of them is null."""
    if assignment is None:
        return generation is None or stream is None
    return generation is not None and assignment[0] == generation and assignment[1] == stream


def _wins(assignment: Assignment | None, generation: int | None, stream: bytes | None) -> bool:
    """Whether it is larger than that of these columns; none is less than any (RowState.newest)."""
    if assignment is None:
        return False
    return generation is None or stream is None or (assignment[0], assignment[1]) > (generation, stream)
