"""The state table: what stands under which clustering value, read and written in chunks.

`clustering` starts with one of four bytes, so that what is said of a whole partition sorts before its rows and a
range of rows is a BETWEEN: 00 the partition's deletion; 01 the static row; 02 and a range's start: that range's
deletion; 03 and the order-preserving clustering bytes: a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

import sqlalchemy as sa

from tailrace_schemas.change import Deletion
from tailrace_spark.deletions import NOTHING_DELETED, PartitionState, RangeDeletion
from tailrace_spark.rowstate import RowState
from tailrace_spark.statecodec import decode_deletion, decode_state, encode_deletion, encode_state, newest

PARTITION: Final = b"\x00"
STATIC: Final = b"\x01"
RANGE: Final = b"\x02"
ROW: Final = b"\x03"
END: Final = b"\x04"
# Rows of one read or write: 2 parameters each stay far below SQLite's 32766 and PostgreSQL's 65535.
CHUNK: Final = 500

RowKey = tuple[bytes, bytes]
"""(partition key, clustering value of the state table)."""
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Stored:
    """One row of the state table as it is: its bytes tell whether merging changed anything."""

    state: RowState
    encoded: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """What is said of a partition beside its rows."""

    deletions: PartitionState = NOTHING_DELETED
    static: Stored | None = None


class StateTable:
    """Reads and writes one state table in the caller's transaction."""

    def __init__(self, table: sa.Table, insert: sa.Insert) -> None:
        """`insert` must overwrite on conflict."""
        self.table = table
        self._upsert = insert
        self._delete = table.delete().where(table.c.key == sa.bindparam("k"), table.c.clustering == sa.bindparam("c"))

    def heads(self, connection: sa.Connection, keys: Iterable[bytes]) -> dict[bytes, Head]:
        """The heads of partitions; those without one are left out."""
        c = self.table.c
        found: dict[bytes, list[tuple[bytes, bytes]]] = {}
        for chunk in chunks(keys, CHUNK):
            query = sa.select(c.key, c.clustering, c.state).where(c.key.in_(chunk), c.clustering < ROW)
            for key, clustering, state in connection.execute(query.order_by(c.key, c.clustering)):
                found.setdefault(key, []).append((clustering, state))
        return {key: _head(rows) for key, rows in found.items()}

    def rows(self, connection: sa.Connection, keys: Sequence[RowKey]) -> dict[RowKey, Stored]:
        """The states under these keys, at most CHUNK of them; those without one are left out."""
        c = self.table.c
        wanted = sa.values(sa.column("k", sa.LargeBinary), sa.column("c", sa.LargeBinary), name="wanted")
        named = wanted.data(list(keys)).cte()
        query = sa.select(c.key, c.clustering, c.state).join_from(
            named, self.table, sa.and_(c.key == named.c.k, c.clustering == named.c.c)
        )
        return {(key, at): _stored(state) for key, at, state in connection.execute(query)}

    def between(self, connection: sa.Connection, key: bytes, low: bytes, high: bytes) -> Iterator[dict[RowKey, Stored]]:
        """The states with low <= clustering < high, in chunks and in order; the caller may write between them."""
        c = self.table.c
        while True:
            query = sa.select(c.clustering, c.state).where(c.key == key, c.clustering >= low, c.clustering < high)
            found = connection.execute(query.order_by(c.clustering).limit(CHUNK)).all()
            if found:
                yield {(key, at): _stored(state) for at, state in found}
            if len(found) < CHUNK:
                return
            low = found[-1][0] + b"\x00"

    def delete_older(self, connection: sa.Connection, key: bytes, low: bytes, high: bytes, written: int) -> int:
        """Remove the states of an area that have nothing as new as `written`; how many there were."""
        c = self.table.c
        area = sa.and_(c.key == key, c.clustering >= low, c.clustering < high)
        return connection.execute(self.table.delete().where(area, c.newest < written)).rowcount

    def write(self, connection: sa.Connection, states: dict[RowKey, RowState]) -> None:
        """Put these states under their keys; an empty one is removed."""
        kept = [
            {"key": key, "clustering": at, "newest": newest(state), "state": encode_state(state)}
            for (key, at), state in states.items()
            if not state.empty
        ]
        gone = [row_key for row_key, state in states.items() if state.empty]
        self._write(connection, kept, gone)

    def write_deletions(
        self, connection: sa.Connection, key: bytes, before: PartitionState, after: PartitionState
    ) -> None:
        """Put a partition's deletions in place of what they were."""
        old, new = _deletion_rows(before), _deletion_rows(after)
        kept = [
            {"key": key, "clustering": at, "newest": deletion.written, "state": encode_deletion(deletion, end)}
            for at, (deletion, end) in new.items()
            if old.get(at) != (deletion, end)
        ]
        self._write(connection, kept, [(key, at) for at in old if at not in new])

    def _write(self, connection: sa.Connection, kept: list[dict[str, object]], gone: list[RowKey]) -> None:
        if gone:
            connection.execute(self._delete, [{"k": key, "c": at} for key, at in gone])
        if kept:
            connection.execute(self._upsert, kept)


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of at most `size`."""
    left = iter(items)
    while chunk := list(islice(left, size)):
        yield chunk


def _stored(encoded: bytes) -> Stored:
    return Stored(decode_state(encoded), encoded)


def _head(rows: list[tuple[bytes, bytes]]) -> Head:
    deletion: Deletion | None = None
    static: Stored | None = None
    ranges: list[RangeDeletion] = []
    for clustering, encoded in rows:
        if clustering == PARTITION:
            deletion, _ = decode_deletion(encoded)
        elif clustering == STATIC:
            static = _stored(encoded)
        else:
            found, end = decode_deletion(encoded)
            ranges.append(RangeDeletion(clustering[len(RANGE) :], end, found))
    return Head(PartitionState(deletion, tuple(ranges)), static)


def _deletion_rows(partition: PartitionState) -> dict[bytes, tuple[Deletion, bytes | None]]:
    rows: dict[bytes, tuple[Deletion, bytes | None]] = {
        RANGE + part.start: (part.deletion, part.end) for part in partition.ranges
    }
    if partition.deletion is not None:
        rows[PARTITION] = (partition.deletion, None)
    return rows
