"""The sink of log tables: every change a row of `<table>_scylla_cdc_log`, in a Cassandra or ScyllaDB cluster."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from tailrace_schemas.change import Change
from tailrace_schemas.errors import DecodeError, ServiceError, UnsupportedError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.cassandra import Batch, RefusedError
from tailrace_spark.sinks.cassandra_parts import Letters, Store, make_types
from tailrace_spark.sinks.cassandra_sink import CassandraSink, Targets
from tailrace_spark.sinks.log_layout import LogTable, add_statement, create_statement, insert_statement, log_table
from tailrace_spark.sinks.log_rows import LogRow, log_rows, write_times
from tailrace_spark.sinks.protocol import DeadLetter, Delivered, Piece, Summary

log = logging.getLogger("tailrace_spark")

LOG_DEAD_LETTERS: Final = "tailrace_log_dead_letters"
"""Another table than that of a `cassandra` sink, which may set aside the same records for the same keyspace."""
# Of one partition, so one mutation to Cassandra; far below the least that any segment size allows.
_BATCH_ROWS: Final = 32
_BATCH_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Target:
    """A log table that is there, with all columns that one definition needs."""

    log: LogTable
    statement: str


@dataclass(frozen=True, slots=True)
class _Update:
    """One update's rows, and the places of its changes."""

    target: _Target | None
    rows: list[LogRow]
    changes: tuple[Delivered, ...]


class LogTablesSink(CassandraSink):
    """Writes changes into log tables; see `UpdateSink` for the promises, `log_layout` for the tables.

    Cassandra has no transactions over partitions: a batch that fails half-way was written in part, and all of it is
    written again. That is no harm, for a row's key, values and write time follow from the mutation alone, so rows that
    are there already are written as they were, whichever replica's copy they come from. What no log table can hold, or
    the cluster refuses, goes to `tailrace_log_dead_letters` in the same keyspace, update by update.
    """

    def __init__(
        self, store: Store, prefix: str, *, keyspace: str = "{keyspace}", ttl_seconds: int = 86_400,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`prefix` is the topics', `keyspace` the log tables', `ttl_seconds` for how long rows stay (0: for ever)."""
        super().__init__(store, Letters(store, prefix, self._keyspace_of, LOG_DEAD_LETTERS))
        self._store = store
        self._keyspace = keyspace
        self._ttl = ttl_seconds
        self._targets = Targets(self._prepare, LOG_DEAD_LETTERS, clock)

    def write_times(self, change: Change) -> Iterable[int]:
        """The times under which a change stands in the log."""
        return write_times(change)

    def _piece(self, piece: Piece, set_aside: list[DeadLetter]) -> Summary:
        letters = list(piece.dead_letters)
        updates = [self._update(changes, letters) for changes in _updates(piece.changes)]
        try:
            self._store.write(_batches(updates, self._ttl))
        except RefusedError:
            self._forget()  # somebody may have dropped a log table, which is made anew then
            again = [self._update(update.changes, letters) for update in updates if update.target is not None]
            updates = [update for update in again if self._alone(update, letters)]
        self._letters.bury(letters)
        set_aside += letters
        changes = sum(len(update.changes) for update in updates if update.target is not None)
        return Summary(changes, sum(len(update.rows) for update in updates), len(letters))

    def _update(self, changes: tuple[Delivered, ...], letters: list[DeadLetter]) -> _Update:
        try:
            target = self._targets.of(changes[-1].change.table)
            return _Update(target, log_rows(changes), changes)
        except DecodeError as error:
            letters += [DeadLetter(delivered.place, str(error), delivered.message) for delivered in changes]
            return _Update(None, [], changes)

    def _alone(self, update: _Update, letters: list[DeadLetter]) -> bool:
        """Write one update, since the cluster refused it or another; False where it is this one."""
        try:
            self._store.write(_batches([update], self._ttl))
        except RefusedError as error:
            words = f"Cassandra refuses it: {error}"
            letters += [DeadLetter(delivered.place, words, delivered.message) for delivered in update.changes]
            return False
        return True

    def _prepare(self, table: Table) -> _Target:
        """The log table of a definition, made or widened first where needed. Raises UnsupportedError."""
        wanted = log_table(table, self._keyspace_of(table.keyspace))
        try:
            make_types(self._store, wanted.keyspace, wanted.columns.values())
            there = self._store.columns(wanted.keyspace, wanted.name)
            if not there:
                self._store.define(create_statement(wanted, self._ttl))
                log.info("%s has the log table %s", wanted.base, wanted)
                there = self._store.columns(wanted.keyspace, wanted.name)
            for name in [name for name in wanted.columns if name not in there]:
                self._store.define(add_statement(wanted, name))
                log.info("%s: column %s added", wanted, name)
        except RefusedError as error:
            raise ServiceError(
                f"log table {wanted}: {error}; the keyspace must exist, and this role may make and alter tables in it"
            ) from error
        for name, cql_type in wanted.columns.items():
            if there.get(name, str(cql_type)) != str(cql_type):
                raise UnsupportedError(
                    f"{wanted}: column {name} is {there[name]} there, and {cql_type} is to be written; drop or rename "
                    "the log table, or write into another keyspace"
                )
        return _Target(wanted, insert_statement(wanted))

    def _forget(self) -> None:
        self._targets.forget()

    def _keyspace_of(self, keyspace: str) -> str:
        return self._keyspace.format(keyspace=keyspace)


def _updates(changes: Iterable[Delivered]) -> Iterator[tuple[Delivered, ...]]:
    for _, together in groupby(changes, _mutation):
        yield tuple(together)


def _mutation(delivered: Delivered) -> tuple[object, ...]:
    place, source = delivered.place, delivered.change.source
    if source is None:
        return place.topic, place.partition, place.offset
    return place.topic, place.partition, source.host, source.epoch, source.segment, source.offset, source.origin


def _batches(updates: Iterable[_Update], ttl_seconds: int) -> Iterator[Batch]:
    """The rows by statement and stream, in batches that Cassandra takes as one mutation each."""
    by_stream: dict[tuple[str, bytes], list[tuple[bytes | None, ...]]] = {}
    for update in updates:
        if update.target is not None:
            for row in update.rows:
                bound = _bound(update.target, row, ttl_seconds)
                by_stream.setdefault((update.target.statement, row.stream), []).append(bound)
    for (statement, _), rows in by_stream.items():
        some: list[tuple[bytes | None, ...]] = []
        size = 0
        for values in rows:
            weight = sum(len(value) for value in values if value is not None)
            if some and (len(some) >= _BATCH_ROWS or size + weight > _BATCH_BYTES):
                yield Batch(statement, tuple(some))
                some, size = [], 0
            some.append(values)
            size += weight
        yield Batch(statement, tuple(some))


def _bound(target: _Target, row: LogRow, ttl_seconds: int) -> tuple[bytes | None, ...]:
    values = [row.values.get(name) for name in target.log.columns]
    return (*values, struct.pack(">q", row.written), struct.pack(">i", ttl_seconds))
