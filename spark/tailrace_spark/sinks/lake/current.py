"""The sink of a lake's current tables: they read as SELECT reads the source, merged as Cassandra merges.

For a source table there is KEYSPACE.NAME, which users read, and KEYSPACE.NAME-state: see `current_table`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Final
from uuid import UUID

from tailrace_schemas.change import Op
from tailrace_schemas.errors import DecodeError, SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, Summary
from tailrace_spark.batch.gc_pause import gc_paused
from tailrace_spark.merge.batch_changes import gather
from tailrace_spark.merge.by_table import group_by_table
from tailrace_spark.merge.definitions import newest_definition
from tailrace_spark.merge.partition import mergeable
from tailrace_spark.merge.purge_horizon import split
from tailrace_spark.merge.table_record import define, truncate
from tailrace_spark.sinks.lake.current_table import STATE_SUFFIX, CurrentTable, state_name
from tailrace_spark.sinks.lake.fast_rows import Buckets
from tailrace_spark.sinks.lake.history import LakeHistory, table_name
from tailrace_spark.sinks.lake.names import Names
from tailrace_spark.sinks.lake.state import (
    StateTable,
    TableEntry,
)
from tailrace_spark.sinks.lake.state_reader import WORTH_A_PART, read_now, reading
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.lake.visible_rows import LakeRowRenderer
from tailrace_spark.sinks.protocol import Capabilities
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
    ) -> None:
        """`buckets`: of tables that are made. `ring_delay`: see SqlSink. What expires is looked for so often.

        `merge_horizon`: so many seconds after it was written, and came, a deletion is forgotten; None: never.
        `purge_limit`: so many states of a table in one commit. `worth_a_part`: see `reading`. `clock`
        tells the seconds since the epoch by which what expires is gone.
        """
        self._store = store
        self._buckets = buckets
        self._ring_delay = ring_delay
        self._sweep_seconds = sweep_seconds
        self._clock = clock
        self._merge_horizon = merge_horizon
        self._purge_limit = purge_limit
        self._worth_a_part = worth_a_part
        self._swept = self._purged = 0.0
        self._names: dict[UUID, str] = {}

    def reach(self) -> None:
        """See that the root may be written."""
        self._store.reach()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(sweeping=self)

    def write(self, pieces: Iterable[Piece]) -> Summary:
        """Take in one micro-batch. Raises ServiceError when the store does not answer."""
        return self.merged(pieces)[0]

    def merged(self, pieces: Iterable[Piece]) -> tuple[Summary, Sequence[DeadLetter]]:
        """As `write`; and what was set aside."""
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
        self._bury(letters)
        return summary + Summary(dead_letters=len(letters)), letters

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
            followed = CurrentTable.open(self._store, name.removesuffix(STATE_SUFFIX))
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
            reopened = None if until is None else CurrentTable.open(self._store, followed.name)
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
        name, followed = self._followed(table)
        if followed is None:
            entry = TableEntry(table, announced, buckets=Buckets(self._buckets), names={})
            followed = CurrentTable(self._store, name, StateTable(self._store.open(state_name(name))), entry, new=True)
        else:
            entry = followed.entry
            entry = define(entry, table, announced)
        entry, truncated = truncate(entry, changes, self._ring_delay)
        changes, late = split(truncated.left, entry.purged_to)
        refused += late
        if not changes and entry.truncations == followed.entry.truncations:
            return 0
        entry = replace(entry, names=_names(entry))
        now = int(self._clock())
        with gc_paused():
            try:
                keys = _keys_of(changes)
                with reading(followed.state, keys, entry.buckets, self._worth_a_part) as stored:
                    return followed.merge(gather(changes), entry, truncated.erased, now, stored)
            except DecodeError:
                good = mergeable(changes, LakeRowRenderer(entry.definition, entry.buckets, entry.names), refused)
                stored = read_now(followed.state, _keys_of(good), entry.buckets)
                return followed.merge(gather(good), entry, truncated.erased, now, stored)

    def _followed(self, table: Table) -> tuple[str, CurrentTable | None]:
        """The name under which a source table stands, or is to be made: the first of NAME, NAME-2, ... that is its."""
        known_name = self._names.get(table.id)
        if known_name is not None and (followed := CurrentTable.open(self._store, known_name)) is not None:
            return known_name, followed
        base = table_name(table)
        for suffix in count(1):
            name = base if suffix == 1 else f"{base}-{suffix}"
            followed = CurrentTable.open(self._store, name)
            if followed is None:
                if self._store.open(name) is not None:
                    raise SettingsError(
                        f"{self._store.uri(name)} is a table of another kind: give this sink another path"
                    )
                break
            if followed.entry.definition.id == table.id:
                break
        self._names[table.id] = name
        return name, followed

    def _bury(self, letters: Sequence[DeadLetter]) -> None:
        if letters:
            batch = LakeHistory(self._store).begin()
            try:
                for letter in letters:
                    batch.set_aside(letter)
                batch.commit()
            except BaseException:
                batch.abandon()
                raise


def _keys_of(changes: Sequence[Delivered]) -> set[bytes]:
    """The keys of the partitions that changes are of."""
    return {
        delivered.change.key
        for delivered in changes
        if delivered.change.key is not None and delivered.change.op is not Op.TRUNCATE
    }


def _names(entry: TableEntry) -> Names:
    """What a table calls its columns and fields now, by what it called them before."""
    if entry.names is None:  # an older version made it
        entry = replace(entry, names=LakeRowRenderer(entry.definition, entry.buckets, None).names)
    return LakeRowRenderer(entry.definition, entry.buckets, entry.names).names
