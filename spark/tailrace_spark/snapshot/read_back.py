"""Rows that the log leaves open, read back by key in the task that merges them (`doubts` says which, and why).

CQL does not show whether a row has a marker, which keeps it when its last cell goes. And it shows of counters their
totals, where the log has shards. So such rows are read back by key, and the answers are `read` changes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from uuid import UUID

from tailrace_schemas.change import Cell, Change, Marker, Op, Origin, Source
from tailrace_schemas.cql.values import split_key
from tailrace_schemas.digest import change_digest
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece
from tailrace_spark.snapshot.changes import GRACE_MICROS, total_of
from tailrace_spark.snapshot.driver import PageSource, page_source
from tailrace_spark.snapshot.pace import PageSize
from tailrace_spark.snapshot.reading import (
    Ask,
    ForbiddenError,
    PageError,
    PageReader,
    PendingPage,
    UnreadableError,
    hosts_of,
)
from tailrace_spark.snapshot.selection import statement_by_key
from tailrace_spark.snapshot.settings import SnapshotSettings

_SEEN: Final = Source("", "", Position(0, 0, 0), 0, 1, Origin.SNAPSHOT)
_AT_ONCE: Final = 8
_OF_A_TABLE: Final = (UnreadableError, ForbiddenError)
"""Errors for which changes of other tables do not wait."""
_ROW: Final = 1
_MANY: Final = 200
_OCTETS: Final = 1 << 20
_TABLE: Final = "SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"
_COLUMNS: Final = (
    "SELECT kind, position, column_name FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
)


@dataclass(frozen=True, slots=True)
class Doubt:
    """A row that is to be read back: the last change of it, and the newest write time of its counters."""

    delivered: Delivered
    written: int

    @property
    def values(self) -> list[bytes | None]:
        """The bytes of its key's columns, those of a static row's partition key alone."""
        change = self.delivered.change
        types = [column.type for column in change.table.partition_key]
        return [*split_key(types, change.key or b""), *(change.clustering or ())]


def _is_open(change: Change, *, counters: bool) -> bool:
    """Whether the log leaves open what SELECT returns of the change's row."""
    if change.op is not Op.UPDATE or change.key is None:
        return False
    live = any(not cell.tombstone for cell in change.cells)
    if change.table.is_counter:
        return counters and live
    # A marker of the log settles it, and so does a cell that lives. Static rows have no markers.
    return not change.static and change.marker is None and not live


def answer(
    doubt: Doubt, columns: Sequence[str], row: Sequence[bytes | None] | None, requested_at: int
) -> Delivered | None:
    """What is merged of a row that was read back at `requested_at` (microseconds): a `read` change; None: nothing.

    `row` has the bytes of these columns; None: SELECT returns no row.
    """
    change = doubt.delivered.change
    if row is None:
        return None
    marker: Marker | None = None
    cells: tuple[Cell, ...] = ()
    if change.table.is_counter:
        by_name = {column.name: column for column in change.table.columns}
        cells = tuple(
            [
                Cell(by_name[name], None, doubt.written, None, None, total_of(value, requested_at))
                for name, value in zip(columns, row, strict=True)
                if value is not None and name in by_name
            ]
        )
    elif all(value is None for value in row):
        # Of what is written or deleted while it is read the log tells, with a later time.
        marker = Marker(requested_at - GRACE_MICROS)
    if marker is None and not cells:
        return None
    read = Change(
        op=Op.READ,
        table=change.table,
        token=change.token,
        key=change.key,
        clustering=change.clustering,
        static=change.static,
        marker=marker,
        cells=cells,
        source=replace(_SEEN, seen=requested_at // 1000),
    )
    read = replace(read, digest=change_digest(read))
    # Its place is the change's, whose bytes a dead letter has then: a replay reads the row back once more.
    return replace(doubt.delivered, change=read, others=(), images=None)


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Adds to the pieces of a batch what was read back of their rows. It is pickled with tasks, with secrets.

    `tables` ("keyspace.name") are those of which a snapshot has read rows. `counters`: also what changes counters.
    """

    settings: SnapshotSettings = field(repr=False)
    tables: frozenset[str]
    counters: bool

    def asks(self, change: Change) -> bool:
        """Whether a change's row is read back: behind each of its copies, as a later answer may have more."""
        return str(change.table) in self.tables and _is_open(change, counters=self.counters)

    def doubts(self, changes: Iterable[Delivered]) -> dict[tuple[UUID, bool], list[Doubt]]:
        """The rows to be read back, each once, by the ids of their tables and whether static."""
        rows: dict[tuple[UUID, bool], dict[tuple[object, ...], Doubt]] = {}
        for delivered in changes:
            change = delivered.change
            if not self.asks(change):
                continue
            rows_of_table = rows.setdefault((change.table.id, change.static), {})
            row_key = (change.key, change.clustering)
            earlier = rows_of_table.get(row_key)
            written = max([0 if earlier is None else earlier.written, *[cell.written for cell in change.cells]])
            rows_of_table[row_key] = Doubt(delivered, written)
        return {table: list(rows_of_table.values()) for table, rows_of_table in rows.items()}

    def added(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces, each followed by one of what was read back. Raises ServiceError where nodes do not answer.

        A change whose row Cassandra does not give is merged, and is a dead letter too, which says so.
        """
        for piece in pieces:
            yield piece
            doubts = self.doubts(piece.changes)
            if doubts:
                with page_source(self.settings) as source:
                    reading = _Reading(self.settings, source)
                    answers = tuple([read for rows in doubts.values() for read in reading.answers(rows)])
                if answers or reading.unread:
                    yield Piece(answers, tuple(reading.unread))


class _Reading:
    """Reads rows by key, a few at once. `unread` are those that Cassandra does not give."""

    def __init__(self, settings: SnapshotSettings, source: PageSource) -> None:
        self._source = source
        self._settings = settings
        self._at_once = min(_AT_ONCE, settings.requests_per_node or _AT_ONCE)
        self.unread: list[DeadLetter] = []

    def answers(self, doubts: Sequence[Doubt]) -> Iterator[Delivered]:
        """What was read of rows of one table, all of them static or none."""
        change = doubts[0].delivered.change
        columns_by_kind = self._columns(change.table)
        if columns_by_kind is None:  # its rows went with it
            return
        columns = columns_by_kind[b"static" if change.static else b"regular"]
        # A column of the key may have another name by now than the change's definition has for it.
        key = [*columns_by_kind[b"partition_key"], *(() if change.static else columns_by_kind[b"clustering"])]
        statement = statement_by_key(change.table, key, columns, static=change.static)
        waiting: deque[tuple[Doubt, Ask, PendingPage | None]] = deque()
        for doubt in doubts:
            ask = partial(self._source.select, statement, doubt.values)
            pending = None
            with suppress(PageError, *_OF_A_TABLE):  # asked again where its answer is needed, which then waits
                pending = ask(_ROW, None, None)
            waiting.append((doubt, ask, pending))
            if len(waiting) == self._at_once:
                yield from self._answer(columns, *waiting.popleft())
        while waiting:
            yield from self._answer(columns, *waiting.popleft())

    def _answer(
        self, columns: Sequence[str], doubt: Doubt, ask: Ask, pending: PendingPage | None
    ) -> Iterator[Delivered]:
        subject = f"a row of {doubt.delivered.change.table}"
        try:
            page = self._reader(_ROW).page(subject, ask, hosts_of(), pending=pending)
        except _OF_A_TABLE as error:
            self.unread.append(_letter(doubt.delivered, error))
            return
        row = [values[0] for values in page.columns[1:]] if page.rows else None
        read = answer(doubt, columns, row, page.requested_at)
        if read is not None:
            yield read

    def _columns(self, table: Table) -> Mapping[bytes | None, list[str]] | None:
        """The names of a table's columns as they are now, by kind, keys in their order; None where it was dropped."""
        ids = [row_id for (row_id,) in self._rows(table, _TABLE)]
        if ids != [table.id.bytes]:
            return None
        columns_by_kind: defaultdict[bytes | None, list[str]] = defaultdict(list)
        # A position is -1 outside the key, and counts from 0 in both of its parts.
        for kind, _, name in sorted(self._rows(table, _COLUMNS), key=_in_key_order):
            columns_by_kind[kind].append((name or b"").decode())
        return columns_by_kind

    def _rows(self, table: Table, statement: str) -> Iterator[tuple[bytes | None, ...]]:
        ask = partial(self._source.select, statement, [table.keyspace.encode(), table.name.encode()])
        for page in self._reader(_MANY).pages(f"the columns of {table}", ask):
            yield from zip(*page.columns, strict=True)

    def _reader(self, rows: int) -> PageReader:
        return PageReader(PageSize(rows, _OCTETS), self._settings.attempts, self._settings.retry_seconds)


def _in_key_order(column: Sequence[bytes | None]) -> int:
    return int.from_bytes(column[1] or b"", "big", signed=True)


def _letter(delivered: Delivered, error: UnreadableError | ForbiddenError) -> DeadLetter:
    """What people see of a row that could not be read back."""
    table = delivered.change.table
    reason = (
        f"its change is merged, but what SELECT shows of its row since then is not known: {error}. "
        f"Then `tailrace compare {table} --repair` mends the row"
    )
    return DeadLetter(delivered.record_id, reason, delivered.message)
