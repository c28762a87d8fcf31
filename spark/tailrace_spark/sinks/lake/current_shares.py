"""The driver's half of shares of current tables: makes tables ready, and one commit of each with all shares' files.

A commit takes files that were made of the very batch that the table has, in place of files that it still has. So of two
drivers, or of two attempts at a batch, one commits, and the other one's files have no reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import lcm
from typing import Final
from uuid import uuid4

from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import topic_component
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.batch.micro_batch import CommitMessage, MicroBatch, partition_counts
from tailrace_spark.merge.table_record import define
from tailrace_spark.sinks.lake.current_table import state_name
from tailrace_spark.sinks.lake.current_writer import CurrentWriter, StagedRows, require_own_buckets
from tailrace_spark.sinks.lake.followed_tables import FollowedTables, with_names
from tailrace_spark.sinks.lake.state import BATCH
from tailrace_spark.sinks.lake.store import LakeStore, LakeTable
from tailrace_spark.sinks.letters import Letters
from tailrace_spark.sinks.protocol import Definitions, HereOnlyError, summed
from tailrace_spark.sinks.shared_directory import mark_of
from tailrace_spark.sinks.table_faults import is_of_table, reason_of

_MOST_BUCKETS: Final = 4096


class CurrentShares:
    """Plans and commits of one sink."""

    def __init__(
        self,
        store: LakeStore,
        followed: FollowedTables,
        buckets: int,
        ring_delay: float,
        clock: Callable[[], float],
        letters: Letters,
    ) -> None:
        """`buckets`: of tables that are made, at least. `ring_delay` and `clock` in seconds."""
        self._store = store
        self._followed = followed
        self._buckets = buckets
        self._ring_delay = ring_delay
        self._clock = clock
        self._letters = letters

    def writer(self, batch: MicroBatch, definitions: Definitions) -> CurrentWriter:
        """As Sink says. Raises HereOnlyError where shares of one of the tables cannot be written apart."""
        partitions = partition_counts(batch.ends)
        now = int(self._clock())
        for announced, table in definitions:
            self._prepare(table, announced, partitions, now)
        directory = self._store.directory
        mark = None if directory is None else mark_of(directory)
        plan, filters = uuid4().hex, self._followed.filters
        return CurrentWriter(self._store, plan, partitions, self._ring_delay, now, mark, filters, self._letters)

    def commit(self, messages: Sequence[CommitMessage]) -> Summary:
        """One commit of each table that has changes, its state first.

        Raises ServiceError where one is not made: the batch comes again, and changes nothing in the others.
        """
        staged: dict[str, list[StagedRows]] = {}
        for message in messages:
            if isinstance(message.detail, tuple):
                for rows in message.detail:
                    staged.setdefault(rows.name, []).append(rows)
        for name in sorted(staged):
            self._commit(name, staged[name])
        return summed(messages)

    def _prepare(self, table: Table, announced: int, partitions: Mapping[str, int], now: int) -> None:
        name, topic_partitions = str(table), lcm(*(_counts_of(table, partitions) or partitions.values()))
        try:
            name, followed = self._followed.find(table)
            if followed is None:
                followed = self._followed.new(name, table, announced, _multiple(self._buckets, topic_partitions))
                entry = followed.entry
            else:
                entry = define(followed.entry, table, announced)
            for count in _counts_of(table, partitions):
                require_own_buckets(followed, count)
            followed.prepare(with_names(entry), now)
        except BaseException as error:
            if not is_of_table(error):
                raise
            raise HereOnlyError(f"{name}: {reason_of(error)}") from error

    def _commit(self, name: str, staged: Sequence[StagedRows]) -> None:
        """Commit the state, then what is visible of it. What a crash leaves between is shown by the next plan."""
        [batch, *other_batches] = {rows.batch for rows in staged}
        if other_batches:
            raise self._overtaken(name)
        states = state_name(name)
        try:
            state = self._opened(states, {rows.state.identity for rows in staged}, batch)
            visible = self._opened(name, {rows.visible.identity for rows in staged}, batch)
            versions = {BATCH: batch + 1}
            files = [file for rows in staged for file in rows.state.files]
            self._store.commit_staged(
                states, state, files, versions, [r for rows in staged for r in rows.state.replaced]
            )
            files = [file for rows in staged for file in rows.visible.files]
            self._store.commit_staged(
                name, visible, files, versions, [r for rows in staged for r in rows.visible.replaced]
            )
        except BaseException as error:
            if not is_of_table(error):
                raise
            raise HereOnlyError(f"{name}: {reason_of(error)}") from error

    def _opened(self, name: str, identities: set[str], batch: int) -> LakeTable:
        table = self._store.open(name)
        if table is None or identities != {table.identity} or table.version_of(BATCH) != batch:
            raise self._overtaken(name)
        return table

    def _overtaken(self, name: str) -> ServiceError:
        return ServiceError(f"{self._store.uri(name)}: another writer came first: the batch is planned again")


def _counts_of(table: Table, partitions: Mapping[str, int]) -> list[int]:
    """The partitions of a table's topic; none where the topic's name is shortened (contracts.md 4)."""
    name = f".{topic_component(table.keyspace)}.{topic_component(table.name)}"
    return [count for topic, count in partitions.items() if topic.endswith(name)]


def _multiple(least: int, of: int) -> int:
    """The smallest multiple from `least` on; `least` where it would be too many buckets."""
    buckets = -(-least // of) * of
    return buckets if buckets <= _MOST_BUCKETS else least
