"""Takes away the tables of a lake that were made for source tables; what others made there stays."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import count
from uuid import UUID

from tailrace_common.sections.template import directory_name
from tailrace_schemas.table import Table
from tailrace_spark.sinks.lake.current_table import STATE_SUFFIX, CurrentTable, state_name
from tailrace_spark.sinks.lake.history import description
from tailrace_spark.sinks.lake.store import LakeStore


def drop_histories(store: LakeStore, tables: Iterable[Table]) -> list[str]:
    """Drop the histories of source tables, NAME, NAME-2, ...: their names. Raises ServiceError.

    The last one goes first: by the first, another call finds those that are left.
    """
    named = {str(table): table for table in tables}
    dropped: list[str] = []
    for _, table in sorted(named.items()):
        histories = list(_histories(store, table))
        for name in reversed(histories):
            store.drop(name)
        dropped += histories
    return dropped


def _histories(store: LakeStore, table: Table) -> Iterator[str]:
    """A table of another name may stand under NAME-2: what each says of itself tells them apart."""
    base = directory_name(table.keyspace, table.name)
    for suffix in count(1):
        name = base if suffix == 1 else f"{base}-{suffix}"
        stored = store.open(name)
        if stored is None:
            return
        if stored.says == description(table):
            yield name


def drop_currents(store: LakeStore, table_ids: Collection[UUID]) -> list[str]:
    """Drop the current tables that follow these source tables: their names. Raises ServiceError.

    The state, which says what a table follows, goes last.
    """
    dropped: list[str] = []
    for name in [name.removesuffix(STATE_SUFFIX) for name in store.names() if name.endswith(STATE_SUFFIX)]:
        followed = CurrentTable.open(store, name)
        if followed is not None and followed.entry.definition.id in table_ids:
            store.drop(name)
            store.drop(state_name(name))
            dropped.append(name)
    return dropped
