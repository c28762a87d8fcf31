"""The sink of log tables: every change a row of `<table>_scylla_cdc_log`, in a Cassandra or ScyllaDB cluster."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tailrace_schemas.change import Change
from tailrace_schemas.cql.types import quote_identifier
from tailrace_schemas.errors import ServiceError, UnsupportedError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.merge.table_record import merge_definitions
from tailrace_spark.sinks.cassandra.cluster import CassandraStore, RefusedError
from tailrace_spark.sinks.cassandra.cql import ABSENT, Value, mutation_of
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
from tailrace_spark.sinks.cassandra.log.rows import (
    LogInsert,
    Update,
    log_rows,
    mutations_of,
    updates_of,
    was_streamed,
    write_times,
)
from tailrace_spark.sinks.cassandra.settings import LogTablesSinkSettings
from tailrace_spark.sinks.cassandra.sink_base import (
    CassandraSink,
    CassandraWriter,
    NoKeyspaceError,
    SinkOpener,
    TableWriters,
    TargetName,
    make_table,
    make_types,
    require_readable,
)
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import Capabilities, HereOnlyError, Watermark
from tailrace_spark.sinks.table_faults import is_of_table, letters_of, reason_of, refusals_of

WATERMARKS: Final = "tailrace_log_watermarks"
_COLUMNS: Final = "table_name text, complete_until timestamp, waits_for text, PRIMARY KEY (table_name)"

Log = tuple[str, str]
"""Keyspace and name of a log table."""
_LOG: Final = logging.getLogger("tailrace_spark")


class Watermarks:
    """`<keyspace>.tailrace_log_watermarks`: table_name, complete_until, waits_for.

    A log's `complete_until` never goes back, for readers have gone on by it. Where the log was made again, and is
    empty, its row is removed first. Everything raises ServiceError, and RefusedError where there is no keyspace.
    """

    def __init__(self, store: CassandraStore) -> None:
        self._store = store
        self._made: set[str] = set()
        self._written: dict[Log, tuple[int | None, str]] = {}

    def write(self, watermarks: Iterable[tuple[Log, int | None, str]]) -> None:
        """Each log's time (milliseconds since 1970; None: not known) and what it waits for, where they have changed."""
        for log, reached, words in watermarks:
            former = self._former(log)
            newest = max((candidate for candidate in (reached, former[0]) if candidate is not None), default=None)
            if (newest, words) != former:
                self._store.apply([mutation_of(((_insert(log[0]), _row(log[1], newest, words)),), 0, 3)])
                self._written[log] = newest, words

    def forget(self, log: Log) -> None:
        """Remove a log's row, before the log is made again."""
        self._written.pop(log, None)
        statement = f"DELETE FROM {_name(log[0])} WHERE table_name = ?"  # noqa: S608 - names are quoted
        self._store.apply([mutation_of(((statement, (log[1].encode(),)),), 0, 0)])

    def make(self, keyspace: str) -> None:
        """Make the table of a keyspace: before its first log, whose readers ask for it.

        Raises SettingsError where another version made it.
        """
        if keyspace in self._made:
            return
        require_readable(self._store, keyspace, WATERMARKS)
        if not self._store.columns(keyspace, WATERMARKS):
            make_table(self._store, keyspace, WATERMARKS, _COLUMNS)
        self._made.add(keyspace)

    def look_again(self) -> None:
        """What the cluster has may have changed."""
        self._made.clear()
        self._written.clear()

    def _former(self, log: Log) -> tuple[int | None, str]:
        if log not in self._written:
            self.make(log[0])
            query = (
                f"SELECT toUnixTimestamp(complete_until), waits_for FROM {_name(log[0])} "  # noqa: S608 - names are quoted
                "WHERE table_name = %s"
            )
            rows = self._store.execute(query, (log[1],))
            self._written[log] = (rows[0][0], rows[0][1] or "") if rows else (None, "")
        return self._written[log]


def _name(keyspace: str) -> str:
    return f"{quote_identifier(keyspace)}.{WATERMARKS}"


def _insert(keyspace: str) -> str:
    return f"INSERT INTO {_name(keyspace)} (table_name, complete_until, waits_for) VALUES (?, ?, ?)"  # noqa: S608


def _row(table: str, time: int | None, words: str) -> tuple[Value, ...]:
    return table.encode(), ABSENT if time is None else struct.pack(">q", time), words.encode()


class LogTablesSink(CassandraSink):
    """Writes changes into log tables; see `UpdateSink` for the promises, `layout` for the tables.

    A log table has the columns of all definitions that are known of its table, merged. It is made when the table is
    announced, before its first change: readers of ScyllaDB's expect it. Changes of older definitions leave out columns
    that were dropped.

    Cassandra has no transactions over partitions: a batch that fails half-way was written in part, and all of it is
    written again. That is no harm: a row's key, values and write time follow from the mutation alone, whichever
    replica's copy it comes from. So existing rows are written as they were. What no log table can hold, or
    the cluster refuses, goes to the dead letters, update by update.

    Tasks write the same rows. What a log table has follows from all definitions of its table, so plans tell tasks what
    the driver knows of each.
    """

    def __init__(
        self, store: CassandraStore, settings: LogTablesSinkSettings, letters: Letters = LOGGED,
        opener: SinkOpener | None = None,
    ) -> None:  # fmt: skip
        """With an `opener` tasks write too; their own sinks make no tables."""
        super().__init__(store, settings, letters, opener)
        self._settings = settings
        self._keep_dropped = settings.dropped_columns == "keep"
        self._watermarks = Watermarks(store)
        self._known: dict[str, tuple[int, Table]] = {}
        self._noted: dict[int, tuple[Table, int]] = {}
        self._writers = TableWriters(self._prepare, time.monotonic)

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, watermarks=self, whole_updates=self)

    def begin(self, plan: CassandraWriter) -> None:
        """In a worker process: what the plan of the next share says, of definitions too."""
        super().begin(plan)
        if plan.definitions != self._known:
            self._known = dict(plan.definitions)
            self._noted.clear()
            self._writers.forget()

    @staticmethod
    def write_times(change: Change) -> Iterable[int]:
        """The times under which a change stands in the log."""
        return write_times(change)

    @property
    def lateness_ms(self) -> int:
        return round(self._settings.lateness_seconds * 1000)

    def complete(self, watermarks: Iterable[Watermark]) -> None:
        """As WatermarkedSink says; tables without a log have none."""
        rows = []
        for watermark in watermarks:
            try:
                self._writers.of(watermark.table)
            except (UnsupportedError, NoKeyspaceError):
                continue
            log = self._keyspace_of(watermark.table.keyspace), log_name(watermark.table.name)
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
                self._writers.of(self._known[name][1])
            except UnsupportedError:
                continue  # `TableWriters` has logged it; its changes go to the dead letters
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
            self._writers.forget()
        return True

    def _piece(self, piece: Piece, letters: list[DeadLetter]) -> Summary:
        streamed = self._settings.streamed == "write"
        chosen = (update for update in updates_of(piece.changes) if streamed or not was_streamed(update))
        updates = [self._update(changes, letters) for changes in chosen]

        def again() -> list[Update]:
            return [self._update(update.changes, letters) for update in updates if update.insert is not None]

        def refuse(refused: Update, words: str) -> None:
            letters.extend(letters_of(refused.changes, words))

        applied = self._applied(updates, self._apply, again, refuse)
        changes = sum(len(update.changes) for update in applied if update.insert is not None)
        why = refusals_of(piece.changes, letters[len(piece.dead_letters) :])
        return Summary(changes, sum(len(update.rows) for update in applied), len(letters), refused=why)

    def _update(self, changes: tuple[Delivered, ...], letters: list[DeadLetter]) -> Update:
        try:
            self._note(changes[-1].announced, changes[-1].change.table)
            insert = self._writers.of(changes[-1].change.table)
            return Update(insert, log_rows(changes), changes)
        except BaseException as error:
            if not is_of_table(error):
                raise
            letters += letters_of(changes, reason_of(error))
            return Update(None, [], changes)

    def _apply(self, updates: Iterable[Update]) -> None:
        self._store.apply(mutations_of(updates, self._settings.ttl_seconds))

    def _prepare(self, table: Table) -> LogInsert:
        """What writes a definition's changes; its log table is made or altered first. Raises as `_made`."""
        definition = self._known.get(str(table), (0, table))[1]
        log = log_table(definition, self._keyspace_of(table.keyspace))
        own_log = log if definition is table else log_table(table, log.keyspace)
        if self._keep_dropped:
            former = {name: cql_type for name, cql_type in own_log.columns.items() if name not in _key_names(own_log)}
            log = replace(log, columns={**former, **log.columns})
        return self._made(table, str(log), lambda: self._altered(log, own_log))

    def _altered(self, log: LogTable, own: LogTable) -> LogInsert:
        """Bring a log table to the columns of `log`; what then writes the changes of `own`, an older definition or the
        same. Raises RefusedError, UnsupportedError."""
        identity = self._store.identity(log.keyspace, log.name)
        base = None if identity is None else base_of(identity[1])
        if base not in (None, str(log.base)):
            raise UnsupportedError(
                f"{log} is the log of {base}, so not of {log.base}: write them into different keyspaces ([sink.NAME] "
                "keyspace)"
            )
        self._watermarks.make(log.keyspace)
        make_types(self._store, log.keyspace, log.columns.values())
        existing = self._store.columns(log.keyspace, log.name)
        if not existing:
            if self._shares:  # the driver alone makes it, and forgets how far a former one was complete
                raise HereOnlyError(f"there is no {log}")
            self._watermarks.forget((log.keyspace, log.name))
            self._store.define(create_statement(log, self._settings.ttl_seconds))
            _LOG.info("%s has the log table %s", log.base, log)
        elif missing := missing_columns(log, existing):
            self._store.define(add_statement(log, missing))
            _LOG.info("%s: columns %s added", log, ", ".join(missing))
        if base is not None and not self._keep_dropped and (dropped := dropped_columns(log, existing)):
            self._store.define(drop_statement(log, dropped))
            _LOG.info("%s: columns %s dropped, as in %s", log, ", ".join(dropped), log.base)
        if identity is not None:
            self._ids[log.keyspace, log.name] = identity[0]
        return _insert_of(log, own, self._store.columns(log.keyspace, log.name))

    def _make_ready(self, announced: int, table: Table) -> None:
        self._note(announced, table)
        self._writers.of(table)

    def _definitions(self) -> Mapping[str, tuple[int, Table]]:
        return dict(self._known)

    def _target_name(self, table: Table) -> TargetName:
        return self._keyspace_of(table.keyspace), log_name(table.name)

    def _forget(self) -> None:
        super()._forget()
        self._watermarks.look_again()


def _insert_of(log: LogTable, own: LogTable, existing: Mapping[str, str]) -> LogInsert:
    """Raises UnsupportedError where a column that the definition writes is of another type in the log table.

    A key column that was renamed is written under its newest name, and a column that was dropped is left out. A table
    that was dropped and made again is another table: its log has no place for columns of the former one.
    """
    is_same_table = own.base.id == log.base.id
    renamed = dict(zip(_key_names(own), _key_names(log), strict=True)) if is_same_table else {}
    columns: dict[str, str] = {}
    for name, cql_type in own.columns.items():
        column = renamed.get(name, name)
        if column in columns:
            continue  # a column that was dropped, whose name a key column has now
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
    return LogInsert(columns, insert_statement(log, columns))


def _key_names(log: LogTable) -> list[str]:
    return [column.name for column in log.base.key]
