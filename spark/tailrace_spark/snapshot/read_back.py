"""Rows that the log leaves open, read back by key in the task that merges them (`doubts` says which, and why)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tailrace_schemas.change import Change
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece
from tailrace_spark.snapshot.doubts import Doubt, answer, doubts_of, is_asked, statement_by_key
from tailrace_spark.snapshot.driver import PageSource, page_source
from tailrace_spark.snapshot.page_size import PageSize
from tailrace_spark.snapshot.reading import Ask, Clock, Hosts, Page, PageError, PageReader, Patience, UnreadableError
from tailrace_spark.snapshot.reading import PendingPage as Pending
from tailrace_spark.snapshot.settings import SnapshotSettings

_AT_ONCE: Final = 8
_ROW: Final = 1
_MANY: Final = 200
_OCTETS: Final = 1 << 20
_CLOCK: Final = Clock(time.monotonic, time.sleep)
_TABLE: Final = "SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?"
_COLUMNS: Final = "SELECT column_name, kind FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Adds to the pieces of a batch what was read back of their rows. It is pickled with tasks, with secrets.

    `tables` ("keyspace.name") are those of which a snapshot has read rows.
    """

    settings: SnapshotSettings = field(repr=False)
    tables: frozenset[str]
    counters: bool

    def asks(self, change: Change) -> bool:
        """Whether a change's row is read back: behind each of its copies, as a later answer may have more."""
        return is_asked(change, self.tables, counters=self.counters)

    def added(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces, each followed by one of what was read back. Raises ServiceError where nodes do not answer.

        A change whose row Cassandra does not give is merged, and is a dead letter too, which says so.
        """
        for piece in pieces:
            yield piece
            doubts = doubts_of(piece.changes, self.tables, counters=self.counters)
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
        self._patience = Patience(settings.attempts, settings.retry_seconds)
        self._at_once = min(_AT_ONCE, settings.requests_per_node or _AT_ONCE)
        self.unread: list[DeadLetter] = []

    def answers(self, doubts: Sequence[Doubt]) -> Iterator[Delivered]:
        """What was read of rows of one table, all of them static or none."""
        change = doubts[0].delivered.change
        columns = self._columns(change.table, static=change.static)
        if columns is None:  # its rows went with it
            return
        statement = statement_by_key(change.table, columns, static=change.static)
        waiting: deque[tuple[Doubt, Pending | None]] = deque()
        for doubt in doubts:
            waiting.append((doubt, self._asked(statement, doubt.values)))
            if len(waiting) == self._at_once:
                yield from self._answer(statement, columns, *waiting.popleft())
        while waiting:
            yield from self._answer(statement, columns, *waiting.popleft())

    def _answer(
        self, statement: str, columns: Sequence[str], doubt: Doubt, pending: Pending | None
    ) -> Iterator[Delivered]:
        try:
            page = next(self._pages(f"a row of {doubt.delivered.change.table}", statement, doubt.values, _ROW, pending))
        except UnreadableError as error:
            self.unread.append(_letter(doubt.delivered, error))
            return
        row = [values[0] for values in page.columns[1:]] if page.rows else None
        read = answer(doubt, columns, row, page.requested_at)
        if read is not None:
            yield read

    def _columns(self, table: Table, *, static: bool) -> list[str] | None:
        """The names of a table's columns as they are now, but for its key; None where it was dropped."""
        subject, name = f"the columns of {table}", [table.keyspace.encode(), table.name.encode()]
        ids = [row_id for page in self._pages(subject, _TABLE, name) for row_id in page.columns[0]]
        if ids != [table.id.bytes]:
            return None
        columns = [row for page in self._pages(subject, _COLUMNS, name) for row in zip(*page.columns, strict=True)]
        kind = b"static" if static else b"regular"
        return [(column or b"").decode() for column, of in columns if of == kind]

    def _asked(self, statement: str, values: Sequence[bytes | None]) -> Pending | None:
        try:
            return self._source.select(statement, values, _ROW)
        except PageError:
            return None  # asked again where its answer is needed, which then waits

    def _pages(
        self,
        subject: str,
        statement: str,
        values: Sequence[bytes | None],
        rows: int = _MANY,
        pending: Pending | None = None,
    ) -> Iterator[Page]:
        reader, state = PageReader(PageSize(rows, _OCTETS), self._patience, _CLOCK), None
        while True:
            page = reader.page(subject, self._ask(statement, values, state), Hosts(), pending)
            yield page
            pending, state = None, page.next_page
            if state is None:
                return

    def _ask(self, statement: str, values: Sequence[bytes | None], state: bytes | None) -> Ask:
        return lambda rows, host: self._source.select(statement, values, rows, state, host)


def _letter(delivered: Delivered, error: UnreadableError) -> DeadLetter:
    """What people see of a row that could not be read back."""
    table = delivered.change.table
    reason = (
        f"its change is merged, but what SELECT shows of its row since then is not known: {error}. "
        f"Then `tailrace compare {table} --repair` mends the row"
    )
    return DeadLetter(delivered.record_id, reason, delivered.message)
