"""The SQL sink: a SQLite file or a PostgreSQL database whose tables follow the source."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import SQLAlchemyError

from tailrace_common.secrets import shown_database
from tailrace_common.sections.template import CLUSTERING, KEY
from tailrace_schemas.table import ColumnKind, Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import (
    CommitMessage,
    DeadLetter,
    MicroBatch,
    Piece,
    SinkProgress,
    Summary,
    offsets_from_json,
    offsets_to_json,
)
from tailrace_spark.batch.pieces import coalesced, gc_paused, one_copy, prefetched
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.merge.stored_row import ROW, STATIC, RowKey, decode_stored
from tailrace_spark.merge.table_record import TableRecord
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import (
    BatchWrite,
    Capabilities,
    Definitions,
    Follows,
    Needed,
    StoredVisible,
    follows_all,
    here,
    nothing_needed,
    summed,
)
from tailrace_spark.sinks.sql.catalog import Catalog, OnDrop
from tailrace_spark.sinks.sql.deferred import gather_deferred
from tailrace_spark.sinks.sql.layout import LayoutTables
from tailrace_spark.sinks.sql.piece_merges import WAITS, PieceMerges, TableMerges, TableWait
from tailrace_spark.sinks.state_store.bulk import overwrite
from tailrace_spark.sinks.state_store.engine import absent, failure, open_engine, remedy, try_out
from tailrace_spark.sinks.state_store.fences import Claim, Fence, begin_partition
from tailrace_spark.sinks.state_store.state_table import pages
from tailrace_spark.sinks.state_store.tables import CATALOG, MYSQL, MYSQL_TABLE, SQLITE
from tailrace_spark.sinks.worker_cache import WorkerCache

_NEVER: Final = float("inf")
log = logging.getLogger("tailrace_spark")

_DEFERRED_AT_ONCE: Final = 2_000
_PURGED_AT_ONCE: Final = 2_000  # rows of a table at each sweep
_CHUNK: Final = 2_000
STREAMS: Final = sa.Table(
    "tailrace_streams",
    CATALOG,
    sa.Column("stream", sa.Text().with_variant(sa.String(36), MYSQL), primary_key=True),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("offsets", sa.Text().with_variant(mysql.LONGTEXT(), MYSQL), nullable=False),
    **MYSQL_TABLE,
)


@dataclass(frozen=True, slots=True)
class Database:
    """Where a sink writes, as SqlSink gets it. Equal ones share a connection of a worker process."""

    url: str = field(repr=False)
    table: str
    on_drop: OnDrop
    ring_delay: float
    filters: RowFilters = ()
    letters: Letters = LOGGED


class SqlStore:
    """A process's connections to a database, and what it knows of the database.

    `alters`: it makes and alters tables, else what they lack is a plan's to make. `clock` tells the seconds since the
    epoch by which rows are looked at; `wait` passes some.
    """

    def __init__(
        self,
        database: Database,
        *,
        alters: bool = False,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.location = shown_database(database.url)
        self.engine = open_engine(database.url)
        self.clock = clock
        dialect: str = self.engine.dialect.name
        self.catalog = Catalog(self.engine.dialect, database.table, database.on_drop, alters=alters)
        self.merges = TableMerges(self.catalog, dialect, database.ring_delay, self._now)
        self.merges.filter_rows(database.filters)
        self.pieces = PieceMerges(self.merges, dialect, self._now, wait, database.letters)

    def merge(self, connection: sa.Connection, pieces: Iterable[Piece]) -> Summary:
        """Merge pieces in the caller's transaction, and put their dead letters."""
        summary = Summary()
        for piece in prefetched(map(self.pieces.read, coalesced(pieces))):
            summary += self.pieces.merge(connection, piece)
        return summary

    def close(self) -> None:
        """End its connections."""
        self.engine.dispose()

    def _now(self) -> float:
        return self.clock()


@dataclass(frozen=True, slots=True)
class SqlWriter:
    """Merges a share in one transaction, which its row of `tailrace_partitions` belongs to.

    `refused` are tables whose changes are deferred; its message has those that are refused besides, and why.
    `now` is the plan's time, in seconds since the epoch: rows are written as they read then.
    """

    database: Database
    batch: MicroBatch
    fence: Fence
    refused: Mapping[UUID, str]
    now: float

    def write(self, share: KafkaPartition, pieces: Iterable[Piece]) -> CommitMessage:
        """As DataWriter says."""
        with _STORES.borrowed(self.database) as store:
            store.clock = lambda: self.now
            store.pieces.waits = {table_id: TableWait(why, _NEVER) for table_id, why in self.refused.items()}
            try:
                with gc_paused(), transaction(store.engine, store.location, "the batch will be tried again") as writing:
                    begin_partition(writing, self.batch, share)
                    store.pieces.forget()
                    summary = store.merge(writing, one_copy(pieces, store.merges.truncated(writing)))
                    self.fence.require(writing)
            except BaseException:
                store.pieces.forget()
                raise
            waits = store.pieces.waits.items()
            return CommitMessage(share, summary, {name: wait.why for name, wait in waits if name not in self.refused})


_STORES: Final = WorkerCache(SqlStore)


@contextmanager
def transaction(engine: sa.Engine, location: str, otherwise: str) -> Iterator[sa.Connection]:
    """`location` names the database without secrets, `otherwise` says what a failure comes to. Raises ServiceError."""
    try:
        with engine.begin() as connection:
            yield connection
    except SQLAlchemyError as error:
        raise failure("sink", location, error, f"{remedy(error)}; {otherwise}") from error


class SqlSink:
    """Follows source tables in one database; see `Sink` for the promises, `layout` for the tables.

    A share of a micro-batch is one transaction. A change that the database refuses (U+0000 in PostgreSQL, a key too
    long for its index) goes to the dead letters; all others are merged. The changes of a table that the database
    refuses as a whole, since somebody altered it or took a right away, are deferred. They wait in
    `tailrace_deferred_changes` until the database takes them; the other tables go on.
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
        letters: Letters = LOGGED,
    ) -> None:
        """`url` is SQLAlchemy's; `table` names a source table in the database. Connects when first used.

        `ring_delay`: within how many seconds all hosts know of a truncation. `merge_horizon`: so many seconds after it
        was written, and came, a deletion is forgotten; None: never. `on_drop`: see `catalog`. `clock` tells the
        seconds since the epoch by which what expires is gone; `wait` passes some. A sweep purges up to
        `purged_at_once` rows of a table. Raises SettingsError for a URL of another database.
        """
        self._clock = clock
        self._merge_horizon = merge_horizon
        self._purged_at_once = purged_at_once
        self._letters = letters
        self._database = Database(url, table, on_drop, ring_delay, letters=letters)
        self._store = store = SqlStore(self._database, alters=True, clock=clock, wait=wait)
        self._location, self._engine, self._catalog = store.location, store.engine, store.catalog
        self._merges, self._pieces = store.merges, store.pieces
        self._created = False
        self._follows: Follows = follows_all
        self._claim = Claim(self._engine)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            claimed=self,
            sweeping=self,
            following=self,
            progress=self,
            comparable=self,
            filtering=self,
            trial=self,
            executors=self._engine.dialect.name != SQLITE,  # whose file is one machine's, and one writer's
        )

    def filter_rows(self, filters: RowFilters) -> None:
        """As RowFilteringSink says."""
        self._database = replace(self._database, filters=filters)
        self._merges.filter_rows(filters)

    def follow(self, follows: Follows) -> None:
        """As FollowingSink says."""
        self._follows = follows

    def claim(self, name: str) -> None:
        """As ClaimedSink says."""
        self._claim.under(name)

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """As Sink says: each share is a transaction."""
        if batch.fences:
            self._claim.renew(batch.stream)
        return here(self._merge) if batch.here else BatchWrite(self._writer(batch, needed()), self._commit)

    def _merge(self, pieces: Iterable[Piece]) -> Summary:
        with gc_paused(), self._transaction("the batch will be delivered again") as connection:
            self._give_back(connection)
            return self._store.merge(connection, pieces)

    def sweep(self) -> int:
        """Show again what has expired; how many rows that changed.

        Each batch does so for the rows that it has changes of. Raises ServiceError as writing does.
        """
        with self._transaction("what expires is looked for again later") as connection:
            swept = self._give_back(connection)
            for tables in self._catalog.all(connection):
                table = tables.layout.definition
                if table.id not in self._pieces.waits and self._follows(table):
                    self._pieces.take_turn(connection, table.id)
                    swept += self._swept(connection, self._catalog.known(table.id) or tables)
            return swept

    def progress(self, stream: str) -> SinkProgress | None:
        """As ProgressSink says."""
        with self._transaction("how far this stream is in it is asked again", writes=False) as connection:
            return read_progress(connection, stream)

    def keep_progress(self, progress: SinkProgress) -> None:
        """As ProgressSink says."""
        with self._transaction("how far this stream is in it is kept again") as connection:
            write_progress(connection, progress)

    def stored(self, table: Table) -> Iterator[StoredVisible]:
        """As ComparableSink says."""
        with self._transaction("it is read again", writes=False) as connection:
            tables = self._followed(connection, table)
            if tables is not None:
                yield from stored_rows(connection, tables)

    def amend(self, table: Table, states: Mapping[RowKey, RowState], to_show: Mapping[RowKey, Clustering]) -> None:
        """As ComparableSink says."""
        with self._transaction("nothing was changed") as connection:
            self._pieces.take_turn(connection, table.id)
            tables = self._followed(connection, table)
            if tables is not None:
                self._merges.of(tables).amend(connection, states, to_show, int(self._clock()))

    def _followed(self, connection: sa.Connection, table: Table) -> LayoutTables | None:
        followed = self._catalog.all(connection)
        return next((tables for tables in followed if tables.layout.definition.id == table.id), None)

    def reach(self) -> None:
        """Connect, and write nothing. Raises ServiceError when the database does not answer or refuses."""
        try:
            self._engine.connect().close()
        except SQLAlchemyError as error:
            raise failure("sink", self._location, error, absent(self._engine)) from error

    def try_out(self) -> str:
        """As TrialSink says."""
        return try_out(self._engine, f"sink {self._location}", self._catalog.create)

    def close(self) -> None:
        """Give the connections back."""
        self._store.close()

    def _writer(self, batch: MicroBatch, definitions: Definitions) -> SqlWriter:
        """Tables are made here, and changes that were deferred are merged where that works now."""
        with self._transaction("the batch is planned again") as connection:
            self._give_back(connection)
            self._merges.forget()  # executors have written since
            for announced, table in definitions:
                self._prepare(connection, table, announced)
        refused = {table_id: wait.why for table_id, wait in self._pieces.waits.items()}
        return SqlWriter(self._database, batch, self._claim.fence, refused, self._clock())

    def _commit(self, messages: Sequence[CommitMessage]) -> Summary:
        """Each share has committed its own. What executors were refused is deferred from now on."""
        for message in messages:
            if isinstance(message.detail, Mapping):
                self._pieces.defer(message.detail)
        return summed(messages)

    def _prepare(self, connection: sa.Connection, table: Table, announced: int) -> None:
        """Make or widen a table; one that is refused waits."""
        if table.id in self._pieces.waits or self._catalog.closed(connection, table, announced):
            return

        self._pieces.take_turn(connection, table.id)

        def make() -> int:
            self._merges.by_definitions(connection, [(table, announced)])
            return 0

        _, why = self._pieces.attempt(connection, [], make)
        if why is not None:
            self._pieces.defer({table.id: why})

    @contextmanager
    def _transaction(self, otherwise: str, *, writes: bool = True) -> Iterator[sa.Connection]:
        """What `writes` is refused behind a later claim: see `fences`."""
        try:
            if self._claim.due:
                self._claim.take(self._begun(otherwise))
            self._merges.turns.alone = not self._claim.named
            with self._begun(otherwise) as connection:
                yield connection
                if writes:
                    self._claim.require(connection)
        except BaseException:
            self._created = False
            self._claim.drop()
            self._pieces.forget()
            raise
        self._created = True

    @contextmanager
    def _begun(self, otherwise: str) -> Iterator[sa.Connection]:
        with transaction(self._engine, self._location, otherwise) as connection:
            if not self._created:
                self._catalog.create(connection)
            yield connection

    def _give_back(self, connection: sa.Connection) -> int:
        """Try the tables again that wait and are due; how many rows that changed."""
        # The database alone knows which wait: a replay may have kept changes, or a task of a plan that came to no end.
        waiting, waits = self._pieces.deferred.waiting(connection), self._pieces.waits
        self._pieces.waits = {table_id: waits.get(table_id, TableWait()) for table_id in waiting}
        due = [
            table_id
            for table_id, wait in self._pieces.waits.items()
            if wait.until <= self._clock() and self._follows(waiting[table_id].definition)
        ]
        rows = 0
        for table_id in due:
            letters: list[DeadLetter] = []
            self._pieces.take_turn(connection, table_id)
            some, why = self._pieces.attempt(
                connection, letters, partial(self._take_deferred, connection, waiting[table_id], letters)
            )
            if why is None:
                rows += some
                del self._pieces.waits[table_id]
                self._letters.put(letters)
                log.info("%s: merged the deferred changes", waiting[table_id].definition)
            else:
                failures = self._pieces.waits[table_id].failures + 1
                self._pieces.waits[table_id] = TableWait(why, self._clock() + WAITS.after(failures), failures)
        return rows

    def _take_deferred(self, connection: sa.Connection, record: TableRecord, letters: list[DeadLetter]) -> int:
        table = record.definition
        if self._catalog.closed(connection, table, record.announced):
            self._pieces.deferred.forget(connection, table.id)
            return 0
        merge = self._merges.by_definitions(connection, [(table, record.announced)])
        with connection.begin_nested():  # in MySQL too, now that there is no more DDL: letters would be lost
            erased = self._pieces.deferred.erasure(connection, table.id)
            rows = 0 if erased is None else merge.erase(connection, erased, int(self._clock()))
            for some in self._pieces.deferred.kept(connection, table.id, _DEFERRED_AT_ONCE):
                rows += self._merges.merge_by_parts(connection, merge, some, letters, gather_deferred)
            self._pieces.deferred.release(connection, table.id)
            return rows

    def _swept(self, connection: sa.Connection, tables: LayoutTables) -> int:
        run = partial(self._sweep_table, connection, tables)
        rows, why = self._pieces.attempt(connection, [], run)
        if why:
            log.warning("%s: could not remove expired rows; will retry: %s", tables.layout.name, why)
        return rows

    def _sweep_table(self, connection: sa.Connection, tables: LayoutTables) -> int:
        merge, now = self._merges.of(tables), int(self._clock())
        with connection.begin_nested():  # in MySQL too, as there is no DDL: half a sweep would not be made again
            swept = merge.sweep(connection, now)
            if self._merge_horizon is not None:
                purged, written = merge.purge(connection, now - self._merge_horizon, now, self._purged_at_once)
                if written is not None:
                    self._pieces.purges.note(connection, tables.layout.definition.id, written)
                if purged:
                    log.debug("%s: %d rows purged", tables.layout.name, purged)
            return swept


def stored_rows(connection: sa.Connection, tables: LayoutTables) -> Iterator[StoredVisible]:
    """As ComparableSink says: states in the order of their keys, then rows without a state."""
    clustering = [tables.rows.c[column.stored] for column in tables.layout.of_kind(ColumnKind.CLUSTERING)]
    state, rows, static = tables.state, tables.rows, tables.static
    seen_row = rows.c[KEY].is_not(None)
    joined = state.outerjoin(rows, sa.and_(rows.c[KEY] == state.c.key, rows.c[CLUSTERING] == state.c.clustering))
    seen_static: sa.ColumnElement[bool] = sa.false()
    if static is not None:
        joined = joined.outerjoin(static, sa.and_(static.c[KEY] == state.c.key, state.c.clustering == STATIC))
        seen_static = static.c[KEY].is_not(None)
    named = sa.or_(state.c.clustering >= ROW, state.c.clustering == STATIC)
    stored = (state.c.key, state.c.clustering, state.c.state, state.c.generation, state.c.stream_id)
    query = sa.select(*stored, seen_row, seen_static, *clustering).select_from(joined).where(named)
    for chunk in pages(connection, query, state.c.key, state.c.clustering, size=_CHUNK):
        for key, clustering_key, encoded, generation, stream_id, row_seen, static_seen, *values in chunk:
            row_key = bytes(key), bytes(clustering_key)
            visible = bool(static_seen if row_key[1] == STATIC else row_seen)
            row_state = decode_stored(encoded, generation, stream_id).state
            yield StoredVisible(row_key, row_state, visible, tuple(values))
    yield from _without_state(connection, tables, clustering)


def _without_state(
    connection: sa.Connection, tables: LayoutTables, clustering: list[sa.Column[object]]
) -> Iterator[StoredVisible]:
    """Rows that somebody else has put there."""
    state, rows, static = tables.state, tables.rows, tables.static
    with_state = sa.exists().where(state.c.key == rows.c[KEY], state.c.clustering == rows.c[CLUSTERING])
    for key, clustering_key, *values in connection.execute(
        sa.select(rows.c[KEY], rows.c[CLUSTERING], *clustering).where(~with_state)
    ):
        row_key: RowKey = bytes(key), bytes(clustering_key)
        yield StoredVisible(row_key, None, True, tuple(values))
    if static is not None:
        with_state = sa.exists().where(state.c.key == static.c[KEY], state.c.clustering == STATIC)
        for (key,) in connection.execute(sa.select(static.c[KEY]).where(~with_state)):
            yield StoredVisible((bytes(key), STATIC), None, True, ())


def read_progress(connection: sa.Connection, stream: str) -> SinkProgress | None:
    """What is kept of a stream; None where nothing is."""
    query = sa.select(STREAMS.c.batch, STREAMS.c.offsets).where(STREAMS.c.stream == stream)
    row = connection.execute(query).one_or_none()
    return None if row is None else SinkProgress(stream, row.batch, offsets_from_json(row.offsets))


def write_progress(connection: sa.Connection, progress: SinkProgress) -> None:
    """Keep it, in place of what was kept of this stream."""
    row = (progress.stream, progress.batch, offsets_to_json(progress.offsets))
    overwrite(connection, STREAMS, ("stream", "batch", "offsets"), [row])
