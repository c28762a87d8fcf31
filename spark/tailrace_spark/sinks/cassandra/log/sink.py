"""The sink of log tables: every change a row of `<table>_scylla_cdc_log`, in a Cassandra or ScyllaDB cluster."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, Protocol
from uuid import UUID

from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError, UnsupportedError
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.merge.definitions import merge_definitions
from tailrace_spark.sinks.cassandra.cluster import Batch, RefusedError
from tailrace_spark.sinks.cassandra.dead_letters import CassandraDeadLetters
from tailrace_spark.sinks.cassandra.log.layout import (
    LogTable,
    add_statement,
    base_of,
    create_statement,
    drop_statement,
    dropped_columns,
    insert_statement,
    log_name,
    log_table,
    missing_columns,
)
from tailrace_spark.sinks.cassandra.log.rows import LogRow, log_rows, write_times
from tailrace_spark.sinks.cassandra.log.watermarks import Watermarks
from tailrace_spark.sinks.cassandra.sink_base import CassandraSink, Targets
from tailrace_spark.sinks.cassandra.store import Store
from tailrace_spark.sinks.cassandra.user_types import make_types
from tailrace_spark.sinks.protocol import Capabilities, Watermark
from tailrace_spark.sinks.table_faults import is_of_table, letters_of, reason_of, refusals_of

_LOG: Final = logging.getLogger("tailrace_spark")

LOG_DEAD_LETTERS: Final = "tailrace_log_dead_letters"
"""Another table than that of a `cassandra` sink, which may set aside the same records for the same keyspace."""
# Of one partition, so one mutation to Cassandra; far below the least that any segment size allows.
_BATCH_ROWS: Final = 32
_BATCH_BYTES: Final = 64 * 1024


class LogStore(Store, Protocol):
    """What the sink asks of a cluster besides."""

    def has_keyspace(self, keyspace: str) -> bool: ...

    def identity(self, keyspace: str, table: str) -> tuple[UUID, str] | None: ...


class NoKeyspaceError(ServiceError):
    """The keyspace of a log table does not exist: its changes wait until somebody makes it."""


@dataclass(frozen=True, slots=True)
class _Target:
    """An existing log table, and what a definition's changes write into it.

    `columns`: the log's columns in the order of `statement`, each with the name that the definition has for it.
    """

    columns: Mapping[str, str]
    statement: str


@dataclass(frozen=True, slots=True)
class _Update:
    """One update's rows, and the places of its changes."""

    target: _Target | None
    rows: list[LogRow]
    changes: tuple[Delivered, ...]


class LogTablesSink(CassandraSink):
    """Writes changes into log tables; see `UpdateSink` for the promises, `layout` for the tables.

    A log table has the columns of all definitions that are known of its table, merged. It is made when the table is
    announced, before its first change: readers of ScyllaDB's expect it. Changes of older definitions leave out columns
    that were dropped.

    Cassandra has no transactions over partitions: a batch that fails half-way was written in part, and all of it is
    written again. That is no harm: a row's key, values and write time follow from the mutation alone, whichever
    replica's copy it comes from. So existing rows are written as they were. What no log table can hold, or
    the cluster refuses, goes to `tailrace_log_dead_letters` in the same keyspace, update by update.
    """

    def __init__(
        self, store: LogStore, prefix: str, *, keyspace: str = "{keyspace}", ttl_seconds: int = 86_400,
        keep_dropped: bool = False, streamed: bool = True, lateness_ms: int = 30_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`prefix` is the topics', `keyspace` the log tables', `ttl_seconds` for how long rows stay (0: for ever).
        `keep_dropped`: log tables keep the columns that their tables drop; `streamed`: data that nodes streamed and
        logged once more are written too. `lateness_ms` is as WatermarkedSink says."""
        super().__init__(store, CassandraDeadLetters(store, prefix, self._keyspace_of, LOG_DEAD_LETTERS))
        self._store = store
        self._keyspace = keyspace
        self._ttl = ttl_seconds
        self._keep_dropped = keep_dropped
        self._streamed = streamed
        self._lateness_ms = lateness_ms
        self._watermarks = Watermarks(store)
        self._known: dict[str, tuple[int, Table]] = {}
        self._noted: dict[int, tuple[Table, int]] = {}
        self._targets = Targets(self._prepare, LOG_DEAD_LETTERS, clock)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(dead_letters=self, announcements=self, watermarks=self, whole_updates=self)

    def write_times(self, change: Change) -> Iterable[int]:
        """The times under which a change stands in the log."""
        return write_times(change)

    @property
    def lateness_ms(self) -> int:
        return self._lateness_ms

    def complete(self, watermarks: Iterable[Watermark]) -> None:
        """As WatermarkedSink says; of tables without a log nothing is told."""
        rows = []
        for watermark in watermarks:
            try:
                self._targets.of(watermark.table)
            except (UnsupportedError, NoKeyspaceError):
                continue
            log = self._keyspace_of(watermark.table.keyspace), log_name(watermark.table)
            rows.append((log, watermark.complete_until, watermark.waits_for))
        try:
            self._watermarks.write(rows)
        except RefusedError as error:
            self._watermarks.look_again()
            raise ServiceError(f"the watermarks of log tables: {error}") from error

    def announce(self, definitions: Iterable[tuple[int, Table]]) -> None:
        tables = {str(table): None for announced, table in definitions if self._note(announced, table)}
        absent: NoKeyspaceError | None = None
        for name in tables:
            try:
                self._targets.of(self._known[name][1])
            except UnsupportedError:
                continue  # `Targets` has logged it; its changes go to the dead letters
            except NoKeyspaceError as error:
                absent = absent or error
        if absent is not None:
            raise absent

    def _note(self, announced: int, table: Table) -> bool:
        """Merge a definition with those that are known of its table: what each writes follows from all of them.

        A table that was dropped and made again is another one, of which the later counts. True where this is of it.
        """
        noted, last = self._noted.get(id(table), (None, -1))
        if noted is table and announced <= last:
            return True
        self._noted[id(table)] = table, announced  # kept, so that no other table gets its id()
        name = str(table)
        latest_definition = self._known.get(name)
        if latest_definition is None:
            self._known[name] = announced, table
            return True
        latest, definition = latest_definition
        if definition.id != table.id:
            if announced <= latest:
                return False
            merged = table
        else:
            merged = merge_definitions(definition, table, second_newer=announced > latest)
        self._known[name] = max(announced, latest), merged
        if merged != definition:
            self._targets.forget()
        return True

    def _piece(self, piece: Piece, letters: list[DeadLetter]) -> Summary:
        table_updates = (changes for changes in _updates(piece.changes) if self._streamed or not _was_streamed(changes))
        updates = [self._update(changes, letters) for changes in table_updates]
        try:
            self._store.write(_batches(updates, self._ttl))
        except BaseException as error:
            if not is_of_table(error):
                raise
            self._forget()  # somebody may have dropped a log table, which is made anew then
            again = [self._update(update.changes, letters) for update in updates if update.target is not None]
            updates = [update for update in again if self._alone(update, letters)]
        changes = sum(len(update.changes) for update in updates if update.target is not None)
        why = refusals_of(piece.changes, letters[len(piece.dead_letters) :])
        return Summary(changes, sum(len(update.rows) for update in updates), len(letters), refused=why)

    def _update(self, changes: tuple[Delivered, ...], letters: list[DeadLetter]) -> _Update:
        try:
            self._note(changes[-1].announced, changes[-1].change.table)
            target = self._targets.of(changes[-1].change.table)
            return _Update(target, log_rows(changes), changes)
        except BaseException as error:
            if not is_of_table(error):
                raise
            letters += letters_of(changes, reason_of(error))
            return _Update(None, [], changes)

    def _alone(self, update: _Update, letters: list[DeadLetter]) -> bool:
        """Write one update, since the cluster refused it or another; False where it is this one."""
        try:
            self._store.write(_batches([update], self._ttl))
        except BaseException as error:
            if not is_of_table(error):
                raise
            letters += letters_of(
                update.changes,
                f"Cassandra refuses it: {error if isinstance(error, RefusedError) else reason_of(error)}",
            )
            return False
        return True

    def _prepare(self, table: Table) -> _Target:
        """What writes a definition's changes; its log table is made or altered first where needed.

        Raises UnsupportedError where there can be none, NoKeyspaceError where its keyspace does not exist.
        """
        definition = self._known.get(str(table), (0, table))[1]
        log = log_table(definition, self._keyspace_of(table.keyspace))
        own_log = log if definition is table else log_table(table, log.keyspace)
        if self._keep_dropped:
            former = {name: cql_type for name, cql_type in own_log.columns.items() if name not in _key_names(own_log)}
            log = replace(log, columns={**former, **log.columns})
        try:
            with suppress(RefusedError):  # another stream may have made or altered it meanwhile
                return self._altered(log, own_log)
            return self._altered(log, own_log)
        except RefusedError as error:
            if not self._store.has_keyspace(log.keyspace):
                raise NoKeyspaceError(
                    f"log table {log}: {error}; the keyspace must exist, and this role may make and alter tables in it"
                ) from error
            raise UnsupportedError(f"log table {log}: Cassandra refuses to make or alter it: {error}") from error

    def _altered(self, log: LogTable, own: LogTable) -> _Target:
        """Bring a log table to the columns of `log`; what then writes the changes of `own`, an older definition or the
        same. Raises RefusedError, UnsupportedError."""
        base = self._base(log)
        if base not in (None, str(log.base)):
            raise UnsupportedError(
                f"{log} is the log of {base}, so not of {log.base}: write them into different keyspaces ([sink.NAME] "
                "keyspace)"
            )
        self._watermarks.make(log.keyspace)
        make_types(self._store, log.keyspace, log.columns.values())
        existing = self._store.columns(log.keyspace, log.name)
        if not existing:
            self._watermarks.forget((log.keyspace, log.name))
            self._store.define(create_statement(log, self._ttl))
            _LOG.info("%s has the log table %s", log.base, log)
        elif missing := missing_columns(log, existing):
            self._store.define(add_statement(log, missing))
            _LOG.info("%s: columns %s added", log, ", ".join(missing))
        if base is not None and not self._keep_dropped and (dropped := dropped_columns(log, existing)):
            self._store.define(drop_statement(log, dropped))
            _LOG.info("%s: columns %s dropped, as in %s", log, ", ".join(dropped), log.base)
        return _target(log, own, self._store.columns(log.keyspace, log.name))

    def _base(self, log: LogTable) -> str | None:
        """The table whose log an existing table of this name is; None where there is none, or it is not ours."""
        identity = self._store.identity(log.keyspace, log.name)
        return None if identity is None else base_of(identity[1])

    def _forget(self) -> None:
        self._targets.forget()
        self._watermarks.look_again()

    def _keyspace_of(self, keyspace: str) -> str:
        return self._keyspace.format(keyspace=keyspace)


def _target(log: LogTable, own: LogTable, existing: Mapping[str, str]) -> _Target:
    """Raises UnsupportedError where a column that the definition writes is of another type in the log table.

    A key column that was renamed is written under its newest name, and a column that was dropped is left out. A table
    that was dropped and made again is another table: its log has no place for columns of the former one.
    """
    is_same_table = own.base.id == log.base.id
    renamed = dict(zip(_key_names(own), _key_names(log), strict=True)) if is_same_table else {}
    columns: dict[str, str] = {}
    for name, cql_type in own.columns.items():
        column = renamed.get(name, name)
        if column not in existing:
            if is_same_table:
                continue
            raise UnsupportedError(
                f"{log}: {own.base} was dropped and made again, and its log has no column {column} any more"
            )
        if existing[column] != str(cql_type):
            raise UnsupportedError(
                f"{log}: column {column} is {existing[column]} there, and {cql_type} is to be written; drop or rename "
                "the log table, or write into another keyspace"
            )
        columns[column] = name
    return _Target(columns, insert_statement(log, columns))


def _key_names(log: LogTable) -> list[str]:
    return [column.name for column in log.base.key]


def _updates(changes: Iterable[Delivered]) -> Iterator[tuple[Delivered, ...]]:
    for _, together in groupby(changes, _mutation):
        yield tuple(together)


def _was_streamed(changes: tuple[Delivered, ...]) -> bool:
    source = changes[0].change.source
    return source is not None and source.streamed


def _mutation(delivered: Delivered) -> tuple[object, ...]:
    record_id, source = delivered.record_id, delivered.change.source
    if source is None:
        return record_id.topic, record_id.partition, record_id.offset
    return record_id.topic, record_id.partition, source.host, source.position, source.origin


def _batches(updates: Iterable[_Update], ttl_seconds: int) -> Iterator[Batch]:
    """The rows by statement and stream, in batches that Cassandra takes as one mutation each."""
    by_stream: dict[tuple[str, bytes], list[tuple[bytes | None, ...]]] = {}
    for update in updates:
        if update.target is not None:
            for row in update.rows:
                bound = _bound(update.target, row, ttl_seconds)
                by_stream.setdefault((update.target.statement, row.stream), []).append(bound)
    for (statement, stream), rows in by_stream.items():
        place = token(stream)
        some: list[tuple[bytes | None, ...]] = []
        size = 0
        for values in rows:
            weight = sum(len(value) for value in values if value is not None)
            if some and (len(some) >= _BATCH_ROWS or size + weight > _BATCH_BYTES):
                yield Batch(statement, tuple(some), place)
                some, size = [], 0
            some.append(values)
            size += weight
        yield Batch(statement, tuple(some), place)


def _bound(target: _Target, row: LogRow, ttl_seconds: int) -> tuple[bytes | None, ...]:
    values = [row.values.get(name) for name in target.columns.values()]
    return (*values, struct.pack(">q", row.written), struct.pack(">i", ttl_seconds))
