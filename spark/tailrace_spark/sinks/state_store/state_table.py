"""The state table: states of rows and partitions in chunks, truncations, and what is forgotten.

`clustering` starts with one of four bytes. So the states of a whole partition sort before its rows, and a range of rows
is a BETWEEN. 00: the partition's deletion; 01: the static row. 02 and a range's start: that range's deletion. 03 and
the order-preserving clustering bytes: a row.

`stream_id` and `generation` are those of the change that wrote the newest cell or deletion of the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, TypeVar
from uuid import UUID

import sqlalchemy as sa

from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.merge.batch_changes import TruncatedBatch, truncate_batch
from tailrace_spark.merge.stored_row import (
    ROW,
    STATIC,
    EncodedState,
    HeadRow,
    PartitionHead,
    RowKey,
    StateTableRow,
    StoredState,
    changed_deletions,
    decode_stored,
    head_of,
    purge_stored,
    state_row,
)
from tailrace_spark.rowstate.codec import decode_truncations, encode_truncations
from tailrace_spark.rowstate.deletions import PartitionState
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.rowstate.truncation import TruncationState
from tailrace_spark.sinks.state_store.bulk import TEMPORARY, fetch, overwrite, stage
from tailrace_spark.sinks.state_store.tables import (
    CATALOG,
    CLUSTERING_BYTES,
    KEY_BYTES,
    MYSQL,
    MYSQL_TABLE,
    POSTGRESQL,
    STATE_BYTES,
    bytes_literal,
)

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
TRUNCATIONS: Final = sa.Table(
    "tailrace_truncations",
    CATALOG,
    sa.Column("table_id", sa.Text().with_variant(sa.String(36), MYSQL), primary_key=True),
    sa.Column("state", STATE_BYTES, nullable=False),
    **MYSQL_TABLE,
)
_MICROS: Final = 1_000_000
_ALL: Final = sa.true()

PURGES: Final = sa.Table(
    "tailrace_purges",
    CATALOG,
    sa.Column("table_id", sa.Text().with_variant(sa.String(36), MYSQL), primary_key=True),
    sa.Column("purged_to", sa.BigInteger, nullable=False),
    **MYSQL_TABLE,
)


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
        area = sa.and_(c.key == key, c.clustering >= low, c.clustering < high)
        for rows in pages(connection, sa.select(c.clustering, *self._stored).where(area), c.clustering):
            yield {(key, clustering): decode_stored(*stored) for clustering, *stored in rows}

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

    def purgeable(
        self, connection: sa.Connection, until: int, limit: int, among: sa.ColumnElement[bool]
    ) -> list[Purgeable]:
        """Rows in which something deletes that was written and came by `until`, in seconds; those from longest ago.

        `among`: as `forget` says.
        """
        c = self.table.c
        query = sa.select(c.key, c.clustering, c.deletes_from, *self._stored).where(c.deletes_from <= until, among)
        rows = connection.execute(query.order_by(c.deletes_from).limit(limit))
        return [((key, clustering), arrived, (encoded, *stream)) for key, clustering, arrived, encoded, *stream in rows]

    def since(self, connection: sa.Connection, written: int) -> Iterator[dict[RowKey, StoredState]]:
        """The states of rows and static rows with something as new as `written`, in chunks; it may be written between.

        Of no use for deletions, which are left out.
        """
        c = self.table.c
        named = sa.or_(c.clustering >= ROW, c.clustering == STATIC)
        query = sa.select(c.key, c.clustering, *self._stored).where(named, c.newest >= written)
        for rows in pages(connection, query, c.key, c.clustering):
            yield {(key, clustering): decode_stored(*stored) for key, clustering, *stored in rows}

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
        self._write(connection, *changed_deletions(key, before, after, now))

    def remove(self, connection: sa.Connection, keys: Sequence[RowKey]) -> None:
        """Remove what stands under these keys."""
        if keys:
            connection.execute(self._delete, [{"k": key, "c": clustering} for key, clustering in keys])

    def _write(self, connection: sa.Connection, stored: list[StateTableRow], removed: list[RowKey]) -> None:
        self.remove(connection, removed)
        overwrite(connection, self.table, STATE_COLUMNS, stored)
        if self._has_heads is False and any(row[1] < ROW for row in stored):
            self._has_heads = True


def pages(
    connection: sa.Connection, query: sa.Select[Any], *order: sa.Column[Any], size: int = CHUNK
) -> Iterator[Sequence[Any]]:
    """The rows of a query in the order of columns that it selects, and which differ in each row; `size` at a time.

    The caller may write between them.
    """
    query = query.order_by(*order).limit(size)
    further: sa.ColumnElement[bool] = _ALL
    while rows := connection.execute(query.where(further)).all():
        yield rows
        if len(rows) < size:
            return
        last = [rows[-1]._mapping[column] for column in order]  # noqa: SLF001 - part of its interface
        further = sa.tuple_(*order) > sa.tuple_(*last)


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of at most `size`."""
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk


Purgeable = tuple[RowKey, int, EncodedState]
"""(under which key, its `deletes_from`, what stands there)."""


def _by_key(item: tuple[RowKey, RowState]) -> RowKey:
    return item[0]


@dataclass(slots=True)
class Truncations:
    """Those of one table id; `ring_delay` in seconds."""

    table_id: UUID
    ring_delay: float
    known: TruncationState = field(default_factory=TruncationState)

    def take(self, changes: Sequence[Delivered]) -> TruncatedBatch:
        """What truncations leave of a batch's changes; nothing is stored of them yet."""
        return truncate_batch(self.known, changes, self.ring_delay)

    def store(self, connection: sa.Connection, truncations: TruncationState) -> None:
        """Store what a batch brought, in the transaction that erases what it erases."""
        if truncations != self.known:
            row = (str(self.table_id), encode_truncations(truncations))
            overwrite(connection, TRUNCATIONS, ("table_id", "state"), [row])
            self.known = truncations

    def load(self, connection: sa.Connection) -> None:
        """Read what is kept of this table."""
        query = sa.select(TRUNCATIONS.c.state).where(TRUNCATIONS.c.table_id == str(self.table_id))
        row = connection.execute(query).one_or_none()
        self.known = TruncationState() if row is None else decode_truncations(row.state)


def load_all(connection: sa.Connection, ring_delay: float) -> dict[UUID, Truncations]:
    """What is kept of all tables of which something is."""
    rows = connection.execute(sa.select(TRUNCATIONS)).all()
    ids = [UUID(row.table_id) for row in rows]
    states = [decode_truncations(row.state) for row in rows]
    return {table_id: Truncations(table_id, ring_delay, state) for table_id, state in zip(ids, states, strict=True)}


class Purges:
    """The largest write time, in microseconds, of what was purged of each table (docs/contracts.md section 6)."""

    def __init__(self) -> None:
        self._known: dict[UUID, int] | None = None

    def forget(self) -> None:
        """Read it again when it is next needed."""
        self._known = None

    def note(self, connection: sa.Connection, table_id: UUID, written: int) -> None:
        """Something of this write time was purged."""
        purged_to = self._read(connection)
        if written > purged_to.get(table_id, written - 1):
            purged_to[table_id] = written
            overwrite(connection, PURGES, ("table_id", "purged_to"), [(str(table_id), written)])

    def reset(self, connection: sa.Connection, table_id: UUID) -> None:
        """All of the table was truncated: what was purged of it would hold nothing back that comes now."""
        if self._read(connection).pop(table_id, None) is not None:
            connection.execute(PURGES.delete().where(PURGES.c.table_id == str(table_id)))

    def purged_to(self, connection: sa.Connection, table_id: UUID) -> int | None:
        """The largest write time of what was purged of a table; None where nothing was."""
        return self._read(connection).get(table_id)

    def _read(self, connection: sa.Connection) -> dict[UUID, int]:
        if self._known is None:
            rows = connection.execute(sa.select(PURGES.c.table_id, PURGES.c.purged_to))
            self._known = {UUID(table_id): purged_to for table_id, purged_to in rows}
        return self._known


def forget(
    state: StateTable,
    connection: sa.Connection,
    until: int,
    now: int,
    limit: int,
    among: sa.ColumnElement[bool] = _ALL,
) -> list[tuple[RowKey, int | None]]:
    """Take out of a state what only deletes, or has expired, and was written and came by `until`; of so many rows.

    Both times in seconds. What is shown stays. `among` says of which rows, where others' are in the state too. Gives
    the row keys, and for each the largest write time that went, in microseconds. What is as old must not be merged any
    more.
    """
    states: dict[RowKey, RowState] = {}
    arrived: dict[RowKey, int] = {}
    purged: list[tuple[RowKey, int | None]] = []
    for row_key, since, stored in state.purgeable(connection, until, limit, among):
        remaining, written = purge_stored(row_key[1], stored, until * _MICROS)
        states[row_key], arrived[row_key] = remaining, since
        purged.append((row_key, written))
    state.write(connection, states, now, arrived)
    return purged
