"""Rows that the log leaves open, read back by key in the task that merges them (`doubts` says which, and why)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import Delivered, Piece
from tailrace_spark.snapshot.doubts import Doubt, answer, doubts_of, statement_by_key
from tailrace_spark.snapshot.pace import Patience
from tailrace_spark.snapshot.reading import Clock, Page, PageError
from tailrace_spark.snapshot.reading import PendingPage as Pending
from tailrace_spark.snapshot.session import PageSource, page_source
from tailrace_spark.snapshot.settings import SnapshotSettings

_AT_ONCE: Final = 8
_MOST_COLUMNS: Final = 10_000
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

    def added(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces, each followed by one of what was read back. Raises ServiceError where nodes do not answer."""
        for piece in pieces:
            yield piece
            doubts = doubts_of(piece.changes, self.tables, counters=self.counters)
            if doubts:
                with page_source(self.settings) as source:
                    reading = _Reading(self.settings, source)
                    answers = [read for rows in doubts.values() for read in reading.answers(rows)]
                if answers:
                    yield Piece(tuple(answers))


class _Reading:
    """Reads rows by key, a few at once."""

    def __init__(self, settings: SnapshotSettings, source: PageSource) -> None:
        self._source = source
        self._patience = Patience(settings.attempts, settings.retry_seconds)
        self._at_once = min(_AT_ONCE, settings.requests_per_node or _AT_ONCE)

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
        page = self._page(statement, doubt.values, pending)
        row = [values[0] for values in page.columns[1:]] if page.rows else None
        read = answer(doubt, columns, row, page.requested_at)
        if read is not None:
            yield read

    def _columns(self, table: Table, *, static: bool) -> list[str] | None:
        """The names of a table's columns as they are now, but for its key; None where it was dropped."""
        name = [table.keyspace.encode(), table.name.encode()]
        [ids] = self._page(_TABLE, name, None).columns
        if list(ids) != [table.id.bytes]:
            return None
        names, kinds = self._page(_COLUMNS, name, None).columns
        kind = b"static" if static else b"regular"
        return [(column or b"").decode() for column, of in zip(names, kinds, strict=True) if of == kind]

    def _asked(self, statement: str, values: Sequence[bytes | None]) -> Pending | None:
        try:
            return self._source.select(statement, values, _MOST_COLUMNS)
        except PageError:
            return None  # asked again where its answer is needed, which then waits

    def _page(self, statement: str, values: Sequence[bytes | None], pending: Pending | None) -> Page:
        failures = 0
        while True:
            try:
                if pending is None:
                    pending = self._source.select(statement, values, _MOST_COLUMNS)
                return pending.get()
            except PageError as error:
                pending, failures = None, failures + 1
                seconds = self._patience.wait(failures, error.fault)
                if seconds is None:
                    raise ServiceError(
                        f"a row cannot be read back from Cassandra after {failures} attempts: {error}; the batch waits"
                    ) from error
                _CLOCK.wait(seconds)
