"""The SQL sink: a SQLite file or a PostgreSQL database whose tables follow the source."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from tailrace_common.secrets import shown_database
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.batch.coalesce import coalesced
from tailrace_spark.batch.dead_letters import accepted
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, Summary
from tailrace_spark.batch.gc_pause import gc_paused
from tailrace_spark.batch.prefetch import prefetched
from tailrace_spark.batch.sink_progress import SinkProgress
from tailrace_spark.merge.by_table import group_by_table
from tailrace_spark.merge.definitions import newest_definition
from tailrace_spark.sinks.protocol import Capabilities
from tailrace_spark.sinks.sql.catalog import Catalog, OnDrop
from tailrace_spark.sinks.sql.dead_letters import SqlDeadLetters
from tailrace_spark.sinks.sql.deferred import DeferredChange, DeferredTables, deferred_change, gather_deferred
from tailrace_spark.sinks.sql.layout import Target
from tailrace_spark.sinks.sql.merge import PreparedBatch
from tailrace_spark.sinks.sql.progress import read_progress, write_progress
from tailrace_spark.sinks.sql.table_merges import TableMerges, refusal_of
from tailrace_spark.sinks.state_store.dialects import MYSQL
from tailrace_spark.sinks.state_store.engine import (
    absent,
    is_busy,
    is_of_one_table,
    open_engine,
    remedy,
    said,
)
from tailrace_spark.sinks.state_store.purge import Purges
from tailrace_spark.sinks.table_faults import is_of_table, reason_of, refusals_of

log = logging.getLogger("tailrace_spark")

_FIRST_WAIT_SECONDS: Final = 1.0
_LONGEST_WAIT_SECONDS: Final = 60.0
_BUSY_WAITS: Final = (0.1, 0.5)
_HELD_AT_ONCE: Final = 2_000
_PURGED_AT_ONCE: Final = 2_000  # rows of a table at each sweep


@dataclass(frozen=True, slots=True)
class _Wait:
    """A table that the database refuses: why, when it is tried again (the clock's seconds), how long after that."""

    why: str = "kept by an earlier process"
    until: float = 0.0
    pause: float = _FIRST_WAIT_SECONDS


@dataclass(frozen=True, slots=True)
class _PreparedPiece:
    """A piece as it is merged: by table its changes, and what was made of them ahead."""

    dead_letters: Sequence[DeadLetter]
    tables: Sequence[tuple[Sequence[Delivered], PreparedBatch | None]]


class SqlSink:
    """Follows source tables in one database; see `Sink` for the promises, `layout` for the tables.

    A micro-batch is one transaction. A change that the database refuses (U+0000 in PostgreSQL, a key too long for
    its index) goes to `tailrace_dead_letters`; all others are merged. The changes of a
    table that the database refuses as a whole, since somebody altered it or took a right away, are deferred in
    `tailrace_held_changes`. They are merged once the database takes them; the other tables go on.
    """

    def __init__(
        self,
        url: str,
        table: str = "{keyspace}_{table}",
        *,
        ring_delay: float = 0.0,
        merge_horizon: int | None = None,
        on_drop: OnDrop = "keep",
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], None] = time.sleep,
        purged_at_once: int = _PURGED_AT_ONCE,
    ) -> None:
        """`url` is SQLAlchemy's; `table` names a source table in the database. Connects when first used.

        `ring_delay`: within how many seconds all hosts know of a truncation. `merge_horizon`: so many seconds after it
        was written, and came, a deletion is forgotten; None: never. `on_drop`: see `catalog`. `clock` tells the
        seconds since the epoch by which what expires is gone; `wait` passes some. A sweep purges up to
        `purged_at_once` rows of a table. Raises SettingsError for a URL of another database.
        """
        self._clock = clock
        self._wait = wait
        self._merge_horizon = merge_horizon
        self._purged_at_once = purged_at_once
        self._held = DeferredTables()
        self._purges = Purges()
        self._waits: dict[UUID, _Wait] = {}
        self._location = shown_database(url)
        self._engine = open_engine(url)
        self._dialect: str = self._engine.dialect.name
        self._catalog = Catalog(self._engine.dialect, table, on_drop)
        self._merges = TableMerges(self._catalog, self._dialect, ring_delay, clock)
        self._created = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(sweeping=self, dead_letters=self, progress=self)

    def write(self, pieces: Iterable[Piece]) -> Summary:
        """Take in one micro-batch. Raises ServiceError when the database does not answer or refuses all of it."""
        return self._write(pieces, (), "the batch will be delivered again")

    def dead_letters(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        """As DeadLetterSink says."""
        with self._transaction("nothing was changed") as connection:
            return SqlDeadLetters(connection).list(after, limit)

    def replay(self, letters: Sequence[DeadLetter], pieces: Iterable[Piece]) -> Summary:
        """As DeadLetterSink says."""
        return self._write(pieces, letters, "nothing was changed")

    def _write(self, pieces: Iterable[Piece], letters: Sequence[DeadLetter], otherwise: str) -> Summary:
        summary = Summary()
        set_aside: list[DeadLetter] = []
        with gc_paused(), self._transaction(otherwise) as connection:
            self._give_back(connection)
            for piece in prefetched(map(self._read, coalesced(pieces))):
                summary += self._piece(connection, piece, set_aside)
            # At last, for MySQL commits what comes before a table is made.
            SqlDeadLetters(connection).remove(accepted(letters, set_aside))
        return summary

    def sweep(self) -> int:
        """Show again what has expired, and erase what truncations let go by now; how many rows that changed.

        Each batch does so for the rows that it has changes of. Raises ServiceError as `write` does.
        """
        with self._transaction("what expires is looked for again later") as connection:
            swept = self._give_back(connection)
            for target in self._catalog.all(connection):
                if target.layout.definition.id not in self._waits:
                    swept += self._swept(connection, target)
            return swept

    def progress(self, stream: str) -> SinkProgress | None:
        """As ProgressSink says."""
        with self._transaction("how far this stream is in it is asked again") as connection:
            return read_progress(connection, stream)

    def keep_progress(self, progress: SinkProgress) -> None:
        """As ProgressSink says."""
        with self._transaction("how far this stream is in it is kept again") as connection:
            write_progress(connection, progress)

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError when the database does not answer or refuses."""
        try:
            self._engine.connect().close()
        except SQLAlchemyError as error:
            raise ServiceError(f"sink {self._location}: {said(error)}{absent(self._engine)}") from error

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self, otherwise: str) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                if not self._created:
                    self._catalog.create(connection)
                    waiting = self._held.waiting(connection)
                    self._waits = {table_id: self._waits.get(table_id, _Wait()) for table_id in waiting}
                yield connection
        except SQLAlchemyError as error:
            self._forget()
            raise ServiceError(f"sink {self._location}: {said(error)}{remedy(error)}; {otherwise}") from error
        except BaseException:
            self._forget()
            raise
        self._created = True

    def _forget(self) -> None:
        self._created = False
        self._purges.forget()
        self._merges.forget()

    def _read(self, piece: Piece) -> _PreparedPiece:
        """The changes of a piece by table, merged with each other where nothing is in the way of that."""
        tables = group_by_table(piece.changes).values()
        return _PreparedPiece(piece.dead_letters, [(changes, self._merges.prepare(changes)) for changes in tables])

    def _piece(self, connection: sa.Connection, piece: _PreparedPiece, set_aside: list[DeadLetter]) -> Summary:
        letters = list(piece.dead_letters)
        summary = Summary()
        for changes, prepared in piece.tables:
            summary += self._table(connection, changes, letters, prepared)
        SqlDeadLetters(connection).put(letters)
        set_aside += letters
        return summary + Summary(dead_letters=len(piece.dead_letters))

    def _table(
        self,
        connection: sa.Connection,
        changes: Sequence[Delivered],
        letters: list[DeadLetter],
        prepared: PreparedBatch | None,
    ) -> Summary:
        """Merge changes of one table, or keep them where the database refuses it for now."""
        table_id, refused = changes[0].change.table.id, list[DeadLetter]()
        rows = deferred = 0
        in_time, late = self._purges.split(connection, changes)
        if late:
            letters += late
            if not in_time:
                return Summary(dead_letters=len(late))
            changes, prepared = in_time, None
        if table_id not in self._waits:
            run = partial(self._merges.merge, connection, changes, refused, prepared)
            rows, why = self._attempt(connection, refused, run)
            if why:
                self._waits[table_id] = _Wait(why, self._clock() + _FIRST_WAIT_SECONDS)
        if table_id in self._waits:
            deferred = self._keep(connection, changes, refused, self._waits[table_id].why)
        letters += refused
        reasons = (
            {str(changes[0].change.table): self._waits[table_id].why} if deferred else refusals_of(changes, refused)
        )
        return Summary(len(changes) - len(refused) - deferred, rows, len(refused) + len(late), deferred, reasons)

    def _attempt(
        self, connection: sa.Connection, letters: list[DeadLetter], run: Callable[[], int]
    ) -> tuple[int, str | None]:
        """What `run` gives, and None; or 0, and why the database refuses this table. A busy one is asked again."""
        waits = iter(_BUSY_WAITS)
        while True:
            letters.clear()
            try:
                with nullcontext() if self._dialect == MYSQL else connection.begin_nested():
                    return run(), None
            except Exception as error:
                busy = isinstance(error, DBAPIError) and is_busy(error)
                if not busy and not is_of_one_table(error):
                    raise
                self._purges.forget()
                self._merges.forget()
                pause = next(waits, None) if busy else None
                if pause is None:
                    letters.clear()
                    return 0, refusal_of(error)
            self._wait(pause)

    def _keep(
        self, connection: sa.Connection, changes: Sequence[Delivered], letters: list[DeadLetter], why: str
    ) -> int:
        table, announced = newest_definition(changes)
        deferred: list[DeferredChange] = []
        for delivered in changes:
            try:
                deferred.append(deferred_change(delivered))
            except Exception as error:
                if not is_of_table(error):
                    raise
                letters.append(DeadLetter(delivered.record_id, reason_of(error), delivered.message))
        self._held.keep(connection, table, announced, deferred, why, int(self._clock()))
        log.warning(
            "%s: deferred %d changes to tailrace_held_changes, other tables go on; will retry: %s",
            table,
            len(deferred),
            why,
        )
        return len(deferred)

    def _give_back(self, connection: sa.Connection) -> int:
        """Try the tables again that wait and are due; how many rows that changed."""
        due = {table_id for table_id, wait in self._waits.items() if wait.until <= self._clock()}
        rows = 0
        waiting = self._held.waiting(connection) if due else {}
        for table_id in due:
            if table_id not in waiting:
                del self._waits[table_id]
                continue
            letters: list[DeadLetter] = []
            some, why = self._attempt(
                connection, letters, partial(self._take_held, connection, *waiting[table_id], letters)
            )
            if why is None:
                rows += some
                del self._waits[table_id]
                SqlDeadLetters(connection).put(letters)
                log.info("%s: merged the deferred changes", waiting[table_id][0])
            else:
                pause = min(2 * self._waits[table_id].pause, _LONGEST_WAIT_SECONDS)
                self._waits[table_id] = _Wait(why, self._clock() + pause, pause)
        return rows

    def _take_held(self, connection: sa.Connection, table: Table, announced: int, letters: list[DeadLetter]) -> int:
        if self._catalog.closed(connection, table):
            self._held.forget(connection, table.id)
            return 0
        merge = self._merges.by_definitions(connection, [(table, announced)])
        rows = 0
        for some in self._held.kept(connection, table.id, _HELD_AT_ONCE):
            rows += self._merges.merge_by_halves(connection, merge, some, letters, gather_deferred)
        self._held.release(connection, table.id)
        return rows

    def _swept(self, connection: sa.Connection, target: Target) -> int:
        run = partial(self._sweep_table, connection, target)
        rows, why = self._attempt(connection, [], run)
        if why:
            log.warning("%s: could not remove expired rows; will retry: %s", target.layout.name, why)
        return rows

    def _sweep_table(self, connection: sa.Connection, target: Target) -> int:
        merge, now = self._merges.of(connection, target), int(self._clock())
        swept = merge.sweep(connection, now)
        if self._merge_horizon is not None:
            purged, written = merge.purge(connection, now - self._merge_horizon, now, self._purged_at_once)
            if written is not None:
                self._purges.note(connection, target.layout.definition.id, written)
            if purged:
                log.debug("%s: %d rows purged", target.layout.name, purged)
        return swept
