"""What writes into a SQL database: on the driver, which may make and alter tables, or a share in a worker process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from tailrace_common.secrets import shown_database
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage, MicroBatch, Piece, Summary
from tailrace_spark.batch.pieces import coalesced, gc_paused, one_copy, prefetched
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.sql.catalog import Catalog, OnDrop
from tailrace_spark.sinks.sql.piece_merges import PieceMerges, TableMerges, TableWait
from tailrace_spark.sinks.state_store.engine import failure, open_engine, remedy
from tailrace_spark.sinks.state_store.fences import Fence, begin_partition
from tailrace_spark.sinks.worker_cache import WorkerCache

_NEVER: Final = float("inf")


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
