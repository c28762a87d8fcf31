"""The state table: what stands under which clustering value, read and written in chunks.

`clustering` starts with one of four bytes, so that what is said of a whole partition sorts before its rows and a
range of rows is a BETWEEN: 00 the partition's deletion; 01 the static row; 02 and a range's start: that range's
deletion; 03 and the order-preserving clustering bytes: a row.

`stream_id` and `generation` are those of the change that wrote the newest of what stands there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeVar

import sqlalchemy as sa

from tailrace_schemas.streams import Assignment
from tailrace_spark.rowstate.codec import decode_deletion, decode_state, encode_deletion, encode_state, newest
from tailrace_spark.rowstate.deletions import NOTHING_DELETED, PartitionState, RangeDeletion
from tailrace_spark.rowstate.row import RowState

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
    """One row of the state table: its bytes and assignment, as they are there, tell whether merging changed anything.

    Merging takes `state` for itself.
    """

    state: RowState
    encoded: bytes
    assignment: Assignment | None

    def differs(self, state: RowState) -> bool:
        """Whether another state than this one is in the table."""
        return state.assignment != self.assignment or encode_state(state) != self.encoded


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
        self._stored = (table.c.state, table.c.generation, table.c.stream_id)
        self._upsert = insert
        self._delete = table.delete().where(table.c.key == sa.bindparam("k"), table.c.clustering == sa.bindparam("c"))

    def heads(self, connection: sa.Connection, keys: Iterable[bytes]) -> dict[bytes, Head]:
        """The heads of partitions; those without one are left out."""
        c = self.table.c
        found: dict[bytes, list[_HeadRow]] = {}
        for chunk in chunks(keys, CHUNK):
            query = sa.select(c.key, c.clustering, *self._stored).where(c.key.in_(chunk), c.clustering < ROW)
            for key, clustering, *stored in connection.execute(query.order_by(c.key, c.clustering)):
                found.setdefault(key, []).append((clustering, *stored))
        return {key: _head(rows) for key, rows in found.items()}

    def rows(self, connection: sa.Connection, keys: Sequence[RowKey]) -> dict[RowKey, Stored]:
        """The states under these keys, at most CHUNK of them; those without one are left out."""
        c = self.table.c
        wanted = sa.values(sa.column("k", sa.LargeBinary), sa.column("c", sa.LargeBinary), name="wanted")
        named = wanted.data(list(keys)).cte()
        query = sa.select(c.key, c.clustering, *self._stored).join_from(
            named, self.table, sa.and_(c.key == named.c.k, c.clustering == named.c.c)
        )
        return {(key, at): _stored(*stored) for key, at, *stored in connection.execute(query)}

    def between(self, connection: sa.Connection, key: bytes, low: bytes, high: bytes) -> Iterator[dict[RowKey, Stored]]:
        """The states with low <= clustering < high, in chunks and in order; the caller may write between them."""
        c = self.table.c
        while True:
            area = sa.and_(c.key == key, c.clustering >= low, c.clustering < high)
            query = sa.select(c.clustering, *self._stored).where(area)
            found = connection.execute(query.order_by(c.clustering).limit(CHUNK)).all()
            if found:
                yield {(key, at): _stored(*stored) for at, *stored in found}
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
            _row(key, at, newest(state), encode_state(state), state.assignment)
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
            _row(key, at, part.deletion.written, encode_deletion(part.deletion, part.end), part.assignment)
            for at, part in new.items()
            if old.get(at) != part
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


_HeadRow = tuple[bytes, bytes, int | None, bytes | None]
"""(clustering value, state, generation, stream id)."""


def _row(key: bytes, clustering: bytes, newest: int, state: bytes, assignment: Assignment | None) -> dict[str, object]:
    generation, stream_id = assignment or (None, None)
    return {
        "key": key,
        "clustering": clustering,
        "newest": newest,
        "state": state,
        "generation": generation,
        "stream_id": stream_id,
    }


def _stored(encoded: bytes, generation: int | None, stream_id: bytes | None) -> Stored:
    state, assignment = decode_state(encoded), _assignment(generation, stream_id)
    state.assign(assignment)
    return Stored(state, encoded, assignment)


def _assignment(generation: int | None, stream_id: bytes | None) -> Assignment | None:
    return None if generation is None or stream_id is None else Assignment(generation, stream_id)


def _head(rows: list[_HeadRow]) -> Head:
    whole = NOTHING_DELETED
    static: Stored | None = None
    ranges: list[RangeDeletion] = []
    for clustering, encoded, generation, stream_id in rows:
        if clustering == STATIC:
            static = _stored(encoded, generation, stream_id)
            continue
        deletion, end = decode_deletion(encoded)
        assignment = _assignment(generation, stream_id)
        if clustering == PARTITION:
            whole = PartitionState(deletion, assignment=assignment)
        else:
            ranges.append(RangeDeletion(clustering[len(RANGE) :], end, deletion, assignment))
    return Head(replace(whole, ranges=tuple(ranges)), static)


def _deletion_rows(partition: PartitionState) -> dict[bytes, RangeDeletion]:
    """What stands under which clustering value; a partition's deletion as a range without an end."""
    rows = {RANGE + part.start: part for part in partition.ranges}
    if partition.deletion is not None:
        rows[PARTITION] = RangeDeletion(b"", None, partition.deletion, partition.assignment)
    return rows
