"""The state table: what stands under which clustering value, read and written in chunks.

`clustering` starts with one of four bytes, so that what is said of a whole partition sorts before its rows and a
range of rows is a BETWEEN: 00 the partition's deletion; 01 the static row; 02 and a range's start: that range's
deletion; 03 and the order-preserving clustering bytes: a row.

`stream_id` and `generation` are those of the change that wrote the newest of what stands there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeVar

import sqlalchemy as sa

from tailrace_spark.rowstate.codec import decode_deletion, encode_deletion
from tailrace_spark.rowstate.deletions import NOTHING_DELETED, PartitionState, RangeDeletion
from tailrace_spark.rowstate.purging import seconds
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.sql_bulk import TEMPORARY, fetch, overwrite, stage
from tailrace_spark.sinks.sql_names import PARTITION, RANGE, ROW, STATIC
from tailrace_spark.sinks.sql_stored import (
    Encoded,
    RowKey,
    StateRow,
    Stored,
    assignment_of,
    row_of,
    state_row,
    stored_as,
)
from tailrace_spark.sinks.sql_types import CLUSTERING_BYTES, KEY_BYTES, MYSQL, POSTGRESQL, bytes_literal

# Rows of one read or write of an area.
CHUNK: Final = 500
STATE_COLUMNS: Final = (
    "key",
    "clustering",
    "newest",
    "state",
    "generation",
    "stream_id",
    "next_expiry",
    "deletes_from",
)
KEYS: Final = sa.Table(
    "tailrace_keys",
    sa.MetaData(),
    sa.Column("key", KEY_BYTES, nullable=False),
    sa.Column("clustering", CLUSTERING_BYTES, nullable=False),
    **TEMPORARY,
)
"""For `stage`: the rows that are asked for."""

_BY_KEYS: Final = (
    "SELECT s.key, s.clustering, s.state, s.generation, s.stream_id "
    "FROM unnest(%b::bytea[], %b::bytea[]) AS wanted(key, clustering) "
    "JOIN {state} AS s ON s.key = wanted.key AND s.clustering = wanted.clustering"
)

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Head:
    """What is said of a partition beside its rows."""

    deletions: PartitionState = NOTHING_DELETED
    static: Stored | None = None


class StateTable:
    """Reads and writes one state table in the caller's transaction."""

    def __init__(self, table: sa.Table, dialect: str) -> None:
        self.table = table
        self._stored = (table.c.state, table.c.generation, table.c.stream_id)
        self._delete = table.delete().where(table.c.key == sa.bindparam("k"), table.c.clustering == sa.bindparam("c"))
        self._is_head = table.c.clustering < bytes_literal(ROW, dialect)
        # Where an index tells at once that no partition has a head, that is asked once, and then known.
        self._unknown = True if dialect == MYSQL else None
        self._has_heads = self._unknown

    def reload(self) -> None:
        """Ask the database again what was known of it."""
        self._has_heads = self._unknown

    def heads(self, connection: sa.Connection, keys: Iterable[bytes]) -> dict[bytes, Head]:
        """The heads of partitions; those without one are left out."""
        c = self.table.c
        if self._has_heads is None:
            self._has_heads = bool(connection.execute(sa.select(sa.exists().where(self._is_head))).scalar())
        if not self._has_heads:
            return {}
        stage(connection, KEYS, [(key, b"") for key in keys])
        query = sa.select(c.key, c.clustering, *self._stored).where(self._is_head)
        query = query.join_from(KEYS, self.table, c.key == KEYS.c.key).order_by(c.key, c.clustering)
        found: dict[bytes, list[_HeadRow]] = {}
        for key, clustering, *stored in connection.execute(query):
            found.setdefault(key, []).append((clustering, *stored))
        return {key: _head(rows) for key, rows in found.items()}

    def rows(self, connection: sa.Connection, keys: Sequence[RowKey]) -> dict[RowKey, Stored]:
        """The states under these keys; those without one are left out."""
        return {row_key: stored_as(*stored) for row_key, stored in self.encoded(connection, keys).items()}

    def encoded(self, connection: sa.Connection, keys: Sequence[RowKey]) -> dict[RowKey, Encoded]:
        """The same, as they are there."""
        c = self.table.c
        if connection.dialect.name == POSTGRESQL:
            statement = _BY_KEYS.format(state=connection.dialect.identifier_preparer.format_table(self.table))
            found = fetch(connection, statement, [[key for key, _ in keys], [at for _, at in keys]])
        else:
            stage(connection, KEYS, keys)
            same = sa.and_(c.key == KEYS.c.key, c.clustering == KEYS.c.clustering)
            query = sa.select(c.key, c.clustering, *self._stored).join_from(KEYS, self.table, same)
            found = [tuple(row) for row in connection.execute(query)]
        return {(key, at): (state, generation, stream_id) for key, at, state, generation, stream_id in found}

    def between(self, connection: sa.Connection, key: bytes, low: bytes, high: bytes) -> Iterator[dict[RowKey, Stored]]:
        """The states with low <= clustering < high, in chunks and in order; the caller may write between them."""
        c = self.table.c
        while True:
            area = sa.and_(c.key == key, c.clustering >= low, c.clustering < high)
            query = sa.select(c.clustering, *self._stored).where(area)
            found = connection.execute(query.order_by(c.clustering).limit(CHUNK)).all()
            if found:
                yield {(key, at): stored_as(*stored) for at, *stored in found}
            if len(found) < CHUNK:
                return
            low = found[-1][0] + b"\x00"

    def delete_older(self, connection: sa.Connection, key: bytes, low: bytes, high: bytes, written: int) -> int:
        """Remove the states of an area that have nothing as new as `written`; how many there were."""
        c = self.table.c
        area = sa.and_(c.key == key, c.clustering >= low, c.clustering < high)
        return connection.execute(self.table.delete().where(area, c.newest < written)).rowcount

    def due(self, connection: sa.Connection, at: int) -> Iterator[dict[RowKey, Stored]]:
        """The states of rows that read otherwise by `at`, in seconds, in chunks; the caller must write each of them."""
        c = self.table.c
        query = sa.select(c.key, c.clustering, *self._stored).where(c.next_expiry <= at)
        query = query.order_by(c.next_expiry).limit(CHUNK)
        while found := connection.execute(query).all():
            yield {(key, where): stored_as(*stored) for key, where, *stored in found}

    def purgeable(self, connection: sa.Connection, until: int, limit: int) -> list[Purgeable]:
        """Rows in which something deletes that was written and came by `until`, in seconds; those from longest ago."""
        c = self.table.c
        query = sa.select(c.key, c.clustering, c.deletes_from, *self._stored).where(c.deletes_from <= until)
        found = connection.execute(query.order_by(c.deletes_from).limit(limit))
        return [((key, at), came, (encoded, *stream)) for key, at, came, encoded, *stream in found]

    def since(self, connection: sa.Connection, written: int) -> Iterator[dict[RowKey, Stored]]:
        """The states of rows and static rows with something as new as `written`, in chunks; it may be written between.

        Of no use for deletions, which are left out.
        """
        c = self.table.c
        named = sa.or_(c.clustering >= ROW, c.clustering == STATIC)
        query = sa.select(c.key, c.clustering, *self._stored).where(named, c.newest >= written)
        query = query.order_by(c.key, c.clustering).limit(CHUNK)
        found = connection.execute(query).all()
        while found:
            yield {(key, at): stored_as(*stored) for key, at, *stored in found}
            further = sa.tuple_(c.key, c.clustering) > sa.tuple_(found[-1][0], found[-1][1])
            found = connection.execute(query.where(further)).all()

    def forget_older(self, connection: sa.Connection, written: int) -> int:
        """Remove all that has nothing as new as `written`, deletions too; how much it was."""
        return connection.execute(self.table.delete().where(self.table.c.newest < written)).rowcount

    def write(
        self,
        connection: sa.Connection,
        states: Mapping[RowKey, RowState],
        at: int | None,
        came: Mapping[RowKey, int] = MappingProxyType({}),
    ) -> None:
        """Put these states under their keys; an empty one is removed. `at`: when they were looked at.

        `came`: see sql_stored.state_row.
        """
        ordered = sorted(states.items(), key=_by_key)
        kept = [state_row(key, state, at, None, came.get(key)) for key, state in ordered if not state.empty]
        gone = [row_key for row_key, state in states.items() if state.empty]
        self._write(connection, kept, gone)

    def write_deletions(
        self, connection: sa.Connection, key: bytes, before: PartitionState, after: PartitionState, now: int | None
    ) -> None:
        """Put a partition's deletions in place of what they were; `now` in seconds, as they came."""
        old, new = _deletion_rows(before), _deletion_rows(after)
        kept = [_deletion_row((key, at), part, now) for at, part in new.items() if old.get(at) != part]
        self._write(connection, kept, [(key, at) for at in old if at not in new])

    def remove(self, connection: sa.Connection, keys: Sequence[RowKey]) -> None:
        """Remove what stands under these keys."""
        if keys:
            connection.execute(self._delete, [{"k": key, "c": at} for key, at in keys])

    def _write(self, connection: sa.Connection, kept: list[StateRow], gone: list[RowKey]) -> None:
        self.remove(connection, gone)
        overwrite(connection, self.table, STATE_COLUMNS, kept)
        if self._has_heads is False and any(row[1] < ROW for row in kept):
            self._has_heads = True


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of at most `size`."""
    left = iter(items)
    while chunk := list(islice(left, size)):
        yield chunk


Purgeable = tuple[RowKey, int, Encoded]
"""(under which key, its `deletes_from`, what stands there)."""
_HeadRow = tuple[bytes, bytes, int | None, bytes | None]
"""(clustering value, state, generation, stream id)."""


def _by_key(item: tuple[RowKey, RowState]) -> RowKey:
    return item[0]


def _head(rows: list[_HeadRow]) -> Head:
    whole = NOTHING_DELETED
    static: Stored | None = None
    ranges: list[RangeDeletion] = []
    for clustering, encoded, generation, stream_id in rows:
        if clustering == STATIC:
            static = stored_as(encoded, generation, stream_id)
            continue
        deletion, end = decode_deletion(encoded)
        assignment = assignment_of(generation, stream_id)
        if clustering == PARTITION:
            whole = PartitionState(deletion, assignment=assignment)
        else:
            ranges.append(RangeDeletion(clustering[len(RANGE) :], end, deletion, assignment))
    return Head(replace(whole, ranges=tuple(ranges)), static)


def _deletion_row(row_key: RowKey, part: RangeDeletion, now: int | None) -> StateRow:
    written = part.deletion.written
    came = max(seconds(written), -1 if now is None else now)
    return row_of(row_key, written, encode_deletion(part.deletion, part.end), part.assignment, deletes=came)


def _deletion_rows(partition: PartitionState) -> dict[bytes, RangeDeletion]:
    """What stands under which clustering value; a partition's deletion as a range without an end."""
    rows = {RANGE + part.start: part for part in partition.ranges}
    if partition.deletion is not None:
        rows[PARTITION] = RangeDeletion(b"", None, partition.deletion, partition.assignment)
    return rows
