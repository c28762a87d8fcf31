"""The current tables of a store by the tables that they follow, and how changes of one are merged with what it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar
from uuid import UUID

from tailrace_common.sections.template import directory_name
from tailrace_schemas.change import Op
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Delivered
from tailrace_spark.batch.gc_pause import gc_paused
from tailrace_spark.merge.batch_changes import BatchChanges, gather
from tailrace_spark.merge.partition import mergeable
from tailrace_spark.merge.row_filter import RowFilters
from tailrace_spark.sinks.lake.current_table import CurrentTable, state_name
from tailrace_spark.sinks.lake.state import StateTable, TableEntry
from tailrace_spark.sinks.lake.state_reader import StateReading, read_now, reading
from tailrace_spark.sinks.lake.store import LakeStore
from tailrace_spark.sinks.lake.visible_rows import LakeRowRenderer
from tailrace_spark.sinks.table_faults import TableRefusedError

Merged = TypeVar("Merged")


class FollowedTables:
    """The current tables of a store."""

    def __init__(self, store: LakeStore, filters: RowFilters = ()) -> None:
        """They show the rows that the filters leave."""
        self._store = store
        self.filters = filters
        self._names: dict[UUID, str] = {}

    def find(self, table: Table) -> tuple[str, CurrentTable | None]:
        """The name under which a source table stands, or is to be made: the first of NAME, NAME-2, ... that is its."""
        known_name = self._names.get(table.id)
        if known_name is not None and (followed := self._open(known_name)) is not None:
            return known_name, followed
        base = directory_name(table.keyspace, table.name)
        for suffix in count(1):
            name = base if suffix == 1 else f"{base}-{suffix}"
            followed = self._open(name)
            if followed is None:
                if self._store.open(name) is not None:
                    raise TableRefusedError(
                        f"{self._store.uri(name)} is a table of another kind: move it away, or give this sink another "
                        "path"
                    )
                break
            if followed.entry.definition.id == table.id:
                break
        self._names[table.id] = name
        return name, followed

    def new(self, name: str, table: Table, announced: int, buckets: int) -> CurrentTable:
        """A table that is to be made, in so many buckets."""
        entry = TableEntry(table, announced, buckets=buckets)
        state = StateTable(self._store.open(state_name(name)))
        return CurrentTable(self._store, name, state, entry, new=True, filters=self.filters)

    def _open(self, name: str) -> CurrentTable | None:
        return CurrentTable.open(self._store, name, self.filters)


def merged_with(
    followed: CurrentTable,
    entry: TableEntry,
    changes: Sequence[Delivered],
    refused: list[DeadLetter],
    worth_a_part: int,
    merge: Callable[[BatchChanges, StateReading], Merged],
) -> Merged:
    """What `merge` makes of a table's changes and its stored partitions; those that it cannot take are `refused`."""
    with gc_paused():
        try:
            with reading(followed.state, _keys_of(changes), entry.buckets, worth_a_part) as stored:
                return merge(gather(changes), stored)
        except DecodeError:
            good = mergeable(changes, LakeRowRenderer(entry.definition, entry.buckets, entry.names), refused)
            return merge(gather(good), read_now(followed.state, _keys_of(good), entry.buckets))


def with_names(entry: TableEntry) -> TableEntry:
    """With what the table calls its columns and fields now, by what it called them before."""
    return replace(entry, names=LakeRowRenderer(entry.definition, entry.buckets, entry.names).names)


def _keys_of(changes: Sequence[Delivered]) -> set[bytes]:
    """The keys of the partitions that changes are of."""
    return {
        delivered.change.key
        for delivered in changes
        if delivered.change.key is not None and delivered.change.op is not Op.TRUNCATE
    }
