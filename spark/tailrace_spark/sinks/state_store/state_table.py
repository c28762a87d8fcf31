"""The state table: the states of rows and of partitions, read and written in chunks.

`clustering` starts with one of four bytes. So the states of a whole partition sort before its rows, and a range of rows
is a BETWEEN. 00: the partition's deletion; 01: the static row. 02 and a range's start: that range's deletion. 03 and
the order-preserving clustering bytes: a row.

`stream_id` and `generation` are those of the change that wrote the newest cell or deletion of the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeVar

import sqlalchemy as sa

from tailrace_spark.merge.partition_head import HeadRow, PartitionHead, deletion_row, deletion_rows, head_of
from tailrace_spark.merge.state_keys import ROW, STATIC
from tailrace_spark.merge.stored_row import EncodedState, RowKey, StateTableRow, StoredState, decode_stored, state_row
from tailrace_spark.rowstate.deletions import PartitionState
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.state_store.bulk import TEMPORARY, fetch, overwrite, stage
from tailrace_spark.sinks.state_store.dialects import CLUSTERING_BYTES, KEY_BYTES, MYSQL, POSTGRESQL, bytes_literal

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

    def heads(self, connection: sa.Connection, keys: Iterable[bytes]) -> dict[bytes, PartitionHead]:
        """The heads of partitions; those without one are left out."""
        c = self.table.c
        if self._has_heads is None:
            self._has_heads = bool(connection.execute(sa.select(sa.exists().where(self._is_head))).scalar())
        if not self._has_heads:
            return {}
        stage(connection, KEYS, [(key, b"") for key in keys])
        query = sa.select(c.key, c.clustering, *self._stored).where(self._is_head)
        query = query.join_from(KEYS, self.table, c.key == KEYS.c.key).order_by(c.key, c.clustering)
        heads: dict[bytes, list[HeadRow]] = {}
        for key, clustering, *stored in connection.execute(query):
            heads.setdefault(key, []).append((clustering, *stored))
        return {key: head_of(rows) for key, rows in heads.items()}

    def rows(self, connection: sa.Connection, keys: Sequence[RowKey]) -> dict[RowKey, StoredState]:
        """The states under these keys; those without one are left out."""
        return {row_key: decode_stored(*stored) for row_key, stored in self.encoded(connection, keys).items()}

    def encoded(self, connection: sa.Connection, keys: Sequence[RowKey]) -> dict[RowKey, EncodedState]:
        """The same, as they are there."""
        c = self.table.c
        if connection.dialect.name == POSTGRESQL:
            statement = _BY_KEYS.format(state=connection.dialect.identifier_preparer.format_table(self.table))
            rows = fetch(connection, statement, [[key for key, _ in keys], [clustering for _, clustering in keys]])
        else:
            stage(connection, KEYS, keys)
            same_row = sa.and_(c.key == KEYS.c.key, c.clustering == KEYS.c.clustering)
            query = sa.select(c.key, c.clustering, *self._stored).join_from(KEYS, self.table, same_row)
            rows = [tuple(row) for row in connection.execute(query)]
        return {
            (key, clustering): (state, generation, stream_id) for key, clustering, state, generation, stream_id in rows
        }

    def between(
        self, connection: sa.Connection, key: bytes, low: bytes, high: bytes
    ) -> Iterator[dict[RowKey, StoredState]]:
        """The states with low <= clustering < high, in chunks and in order; the caller may write between them."""
        c = self.table.c
        while True:
            area = sa.and_(c.key == key, c.clustering >= low, c.clustering < high)
            query = sa.select(c.clustering, *self._stored).where(area)
            rows = connection.execute(query.order_by(c.clustering).limit(CHUNK)).all()
            if rows:
                yield {(key, clustering): decode_stored(*stored) for clustering, *stored in rows}
            if len(rows) < CHUNK:
                return
            low = rows[-1][0] + b"\x00"

    def delete_older(self, connection: sa.Connection, key: bytes, low: bytes, high: bytes, written: int) -> int:
        """Remove the states of an area that have nothing as new as `written`; how many there were."""
        c = self.table.c
        area = sa.and_(c.key == key, c.clustering >= low, c.clustering < high)
        return connection.execute(self.table.delete().where(area, c.newest < written)).rowcount

    def due(self, connection: sa.Connection, now: int) -> Iterator[dict[RowKey, StoredState]]:
        """The states of rows that read otherwise by `now`, in seconds, in chunks; the caller must write each one."""
        c = self.table.c
        query = sa.select(c.key, c.clustering, *self._stored).where(c.next_expiry <= now)
        query = query.order_by(c.next_expiry).limit(CHUNK)
        while rows := connection.execute(query).all():
            yield {(key, clustering): decode_stored(*stored) for key, clustering, *stored in rows}

    def purgeable(self, connection: sa.Connection, until: int, limit: int) -> list[Purgeable]:
        """Rows in which something deletes that was written and came by `until`, in seconds; those from longest ago."""
        c = self.table.c
        query = sa.select(c.key, c.clustering, c.deletes_from, *self._stored).where(c.deletes_from <= until)
        rows = connection.execute(query.order_by(c.deletes_from).limit(limit))
        return [((key, clustering), arrived, (encoded, *stream)) for key, clustering, arrived, encoded, *stream in rows]

    def since(self, connection: sa.Connection, written: int) -> Iterator[dict[RowKey, StoredState]]:
        """The states of rows and static rows with something as new as `written`, in chunks; it may be written between.

        Of no use for deletions, which are left out.
        """
        c = self.table.c
        named = sa.or_(c.clustering >= ROW, c.clustering == STATIC)
        query = sa.select(c.key, c.clustering, *self._stored).where(named, c.newest >= written)
        query = query.order_by(c.key, c.clustering).limit(CHUNK)
        rows = connection.execute(query).all()
        while rows:
            yield {(key, clustering): decode_stored(*stored) for key, clustering, *stored in rows}
            further = sa.tuple_(c.key, c.clustering) > sa.tuple_(rows[-1][0], rows[-1][1])
            rows = connection.execute(query.where(further)).all()

    def forget_older(self, connection: sa.Connection, written: int) -> int:
        """Remove all that has nothing as new as `written`, deletions too; how much it was."""
        return connection.execute(self.table.delete().where(self.table.c.newest < written)).rowcount

    def forget_all(self, connection: sa.Connection) -> int:
        """Remove everything; how much it was."""
        return connection.execute(self.table.delete()).rowcount

    def write(
        self,
        connection: sa.Connection,
        states: Mapping[RowKey, RowState],
        now: int | None,
        arrived: Mapping[RowKey, int] = MappingProxyType({}),
    ) -> None:
        """Put these states under their keys; an empty one is removed. `now`: when they were looked at.

        `arrived`: see `stored_row.state_row`.
        """
        ordered = sorted(states.items(), key=_by_key)
        stored = [state_row(key, state, now, None, arrived.get(key)) for key, state in ordered if not state.empty]
        removed = [row_key for row_key, state in states.items() if state.empty]
        self._write(connection, stored, removed)

    def write_deletions(
        self, connection: sa.Connection, key: bytes, before: PartitionState, after: PartitionState, now: int | None
    ) -> None:
        """Put a partition's deletions in place of what they were; `now` in seconds, as they came."""
        old, new = deletion_rows(before), deletion_rows(after)
        stored = [
            deletion_row((key, clustering), deletion, now)
            for clustering, deletion in new.items()
            if old.get(clustering) != deletion
        ]
        self._write(connection, stored, [(key, clustering) for clustering in old if clustering not in new])

    def remove(self, connection: sa.Connection, keys: Sequence[RowKey]) -> None:
        """Remove what stands under these keys."""
        if keys:
            connection.execute(self._delete, [{"k": key, "c": clustering} for key, clustering in keys])

    def _write(self, connection: sa.Connection, stored: list[StateTableRow], removed: list[RowKey]) -> None:
        self.remove(connection, removed)
        overwrite(connection, self.table, STATE_COLUMNS, stored)
        if self._has_heads is False and any(row[1] < ROW for row in stored):
            self._has_heads = True


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of at most `size`."""
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk


Purgeable = tuple[RowKey, int, EncodedState]
"""(under which key, its `deletes_from`, what stands there)."""


def _by_key(item: tuple[RowKey, RowState]) -> RowKey:
    return item[0]
