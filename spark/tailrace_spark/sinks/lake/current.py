"""The sink of a lake's current tables: they read as SELECT reads the source, merged as Cassandra merges.

For a source table there is KEYSPACE.NAME, which users read, and KEYSPACE.NAME-state: see `current_table`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.batch.micro_batch import MicroBatch
from tailrace_spark.merge.batch_changes import BatchChanges
from tailrace_spark.merge.by_table import group_by_table
from tailrace_spark.merge.definitions import newest_definition
from tailrace_spark.merge.purge_horizon import split
from tailrace_spark.merge.row_filter import RowFilters
from tailrace_spark.merge.table_record import define, truncate
from tailrace_spark.sinks.lake.current_shares import CurrentShares
from tailrace_spark.sinks.lake.current_table import STATE_SUFFIX, CurrentTable
from tailrace_spark.sinks.lake.followed_tables import FollowedTables, merged_with, with_names
from tailrace_spark.sinks.lake.state_reader import WORTH_A_PART, StateReading
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import BatchWrite, Capabilities, Needed, here, nothing_needed
from tailrace_spark.sinks.table_faults import is_of_table, reason_of, refusals_of, set_aside

log = logging.getLogger("tailrace_spark")

_PURGED_AT_ONCE: Final = 20_000  # states of a table in one commit
_PURGES_IN_A_HORIZON: Final = 100


class LakeCurrent:
    """Follows source tables; see `Sink` and `SweepingSink` for the promises.

    When a batch fails, some of its tables may be written and others not. The batch is then written again, which
    changes nothing in the former.
    """

    def __init__(
        self,
        store: LakeStore,
        buckets: int = 16,
        *,
        ring_delay: float = 0.0,
        sweep_seconds: float = 60.0,
        merge_horizon: int | None = None,
        purge_limit: int = _PURGED_AT_ONCE,
        worth_a_part: int = WORTH_A_PART,
        clock: Callable[[], float] = time.time,
        letters: Letters = LOGGED,
    ) -> None:
        """`buckets`: of tables that are made. `ring_delay`: see SqlSink. What expires is looked for so often.

        `merge_horizon`: so many seconds after it was written, and came, a deletion is forgotten; None: never.
        `purge_limit`: so many states of a table in one commit. `worth_a_part`: see `reading`. `clock`
        tells the seconds since the epoch by which what expires is gone.
        """
        self._store = store
        self._letters = letters
        self._buckets = buckets
        self._ring_delay = ring_delay
        self._sweep_seconds = sweep_seconds
        self._clock = clock
        self._merge_horizon = merge_horizon
        self._purge_limit = purge_limit
        self._worth_a_part = worth_a_part
        self._swept = self._purged = 0.0
        self._followed = FollowedTables(store)
        self._shares = CurrentShares(store, self._followed, buckets, ring_delay, clock, letters)

    def reach(self) -> None:
        """See that the root may be written."""
        self._store.reach()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(sweeping=self, filtering=self, executors=True)

    def filter_rows(self, filters: RowFilters) -> None:
        """As RowFilteringSink says."""
        self._followed.filters = filters

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        """As Sink says. No file of a share counts before a commit, and none is made behind another one's: there is
        nothing to fence."""
        if batch.here:
            return here(self._merge)
        return BatchWrite(self._shares.writer(batch, needed()), self._shares.commit)

    def _merge(self, pieces: Iterable[Piece]) -> Summary:
        by_table: dict[UUID, list[Delivered]] = {}
        letters: list[DeadLetter] = []
        for piece in pieces:
            letters += piece.dead_letters
            group_by_table(piece.changes, by_table)
        summary = Summary()
        for changes in by_table.values():
            refused = list[DeadLetter]()
            try:
                rows = self._table(changes, refused)
            except BaseException as error:
                if not is_of_table(error):
                    raise
                summary += set_aside(changes[0].change.table, changes, error, letters)
            else:
                summary += Summary(len(changes) - len(refused), rows, refused=refusals_of(changes, refused))
                letters += refused
        self._letters.put(letters)
        return summary + Summary(dead_letters=len(letters))

    def sweep(self) -> int:
        """Show again what has expired; how many rows that changed.

        It is looked for every `sweep_seconds`: each time is a commit of the tables that have some.
        """
        if self._clock() < self._swept + self._sweep_seconds:
            return 0
        self._swept = self._clock()
        swept, until = 0, self._purge_until()
        states = [name for name in self._store.names() if name.endswith(STATE_SUFFIX)]
        for name in states:
            followed = CurrentTable.open(self._store, name.removesuffix(STATE_SUFFIX), self._followed.filters)
            if followed is not None:
                swept += self._sweep(followed, until)
        return swept

    def _purge_until(self) -> int | None:
        """Up to which second this sweep forgets deletions; None: it forgets none, since that reads whole states."""
        horizon, now = self._merge_horizon, self._clock()
        if horizon is None or now < self._purged + horizon / _PURGES_IN_A_HORIZON:
            return None
        self._purged = now
        return int(now) - horizon

    def _sweep(self, followed: CurrentTable, until: int | None) -> int:
        now = int(self._clock())
        try:
            swept = followed.sweep(now)
            reopened = None if until is None else CurrentTable.open(self._store, followed.name, followed.filters)
            if until is not None and reopened is not None:
                purged = reopened.purge(until, now, self._purge_limit)
                if purged == self._purge_limit:
                    self._purged = 0.0  # there may be more, for the next sweep
                log.debug("%s: purged %d stored rows", followed.name, purged)
            return swept
        except BaseException as error:
            if not is_of_table(error):
                raise
            log.warning("%s: could not remove expired rows; will retry: %s", followed.name, reason_of(error))
            return 0

    def close(self) -> None:
        """Nothing is kept open between batches."""

    def _table(self, changes: Sequence[Delivered], refused: list[DeadLetter]) -> int:
        table, announced = newest_definition(changes)
        name, followed = self._followed.find(table)
        if followed is None:
            followed = self._followed.new(name, table, announced, self._buckets)
            entry = followed.entry
        else:
            entry = define(followed.entry, table, announced)
        entry, truncated = truncate(entry, changes, self._ring_delay)
        changes, late = split(truncated.left, entry.purged_to)
        refused += late
        if not changes and entry.truncations == followed.entry.truncations:
            return 0
        entry = with_names(entry)
        now, merging = int(self._clock()), followed

        def merge(batch: BatchChanges, stored: StateReading) -> int:
            return merging.merge(batch, entry, truncated.erased, now, stored)

        return merged_with(followed, entry, changes, refused, self._worth_a_part, merge)
