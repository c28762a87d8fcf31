"""Which definition of a table, and which cdc flag, held at a position: the log's word first, reads fill in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from uuid import UUID

from tailrace.errors import NewerSchemaError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """What one step changed: new ids, other definitions under known ids, and ids that the cluster has no longer."""

    added: tuple[Table, ...] = ()
    altered: tuple[Table, ...] = ()
    dropped: tuple[Table, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.altered or self.dropped)

    def __str__(self) -> str:
        kinds = (("added", self.added), ("altered", self.altered), ("dropped", self.dropped))
        return "; ".join(f"{kind}: {', '.join(map(str, tables))}" for kind, tables in kinds if tables) or "nothing"


@dataclass(frozen=True, slots=True)
class Timeline:
    """The definitions of one table id, oldest first.

    The first holds from the beginning of the log, as no write to a table comes before its creation. Each later one
    holds behind its position in `since`, the end of the DDL's mutation.

    `inferred` tells of each whether the log did not say it, so that it may be wrong for some of what it holds for.
    `metadata` has the epoch of Cassandra 6's metadata that made each; None where that is not known.
    """

    tables: tuple[Table, ...]
    since: tuple[Position, ...] = ()
    inferred: tuple[bool, ...] = (False,)
    metadata: tuple[int | None, ...] = (None,)

    @property
    def newest(self) -> Table:
        """The last definition."""
        return self.tables[-1]

    def at(self, position: Position) -> Table:
        """The definition that holds for a mutation that ends at this position."""
        if position >= self.since[-1]:
            return self.tables[-1]
        return self.tables[bisect_right(self.since, position)]

    def inferred_at(self, position: Position) -> bool:
        """Whether that definition was inferred."""
        return self.inferred[bisect_right(self.since, position)]

    def then(self, position: Position, table: Table, inferred: bool, metadata: int | None = None) -> Timeline:
        """With one more definition, from a position on; those of later positions stay behind it."""
        index = bisect_right(self.since, position)
        tables = (*self.tables[: index + 1], table, *self.tables[index + 1 :])
        flags = (*self.inferred[: index + 1], inferred, *self.inferred[index + 1 :])
        metadata_epochs = (*self.metadata[: index + 1], metadata, *self.metadata[index + 1 :])
        return Timeline(tables, (*self.since[:index], position, *self.since[index:]), flags, metadata_epochs)

    def written_by(self, position: Position, metadata_epoch: int) -> Table:
        """The definition that a writer of this metadata epoch knew, who may have been ahead of the log's DDL.

        The one of that epoch, else the one that holds at the position. Where that is of a later epoch, it is the last
        one older than the writer's.
        """
        if metadata_epoch in self.metadata:
            return self.tables[len(self.tables) - 1 - self.metadata[::-1].index(metadata_epoch)]
        index = bisect_right(self.since, position)
        while index > 0 and (self.metadata[index] or 0) > metadata_epoch:
            index -= 1
        return self.tables[index]


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """Every definition that is known of every table id, with the position from which it holds; immutable.

    `single` has the definitions of ids that have one: of nearly all, and no position has to be compared. `current` are
    the ids that the cluster has; definitions of others stay for the mutations that the log still holds.
    `cdc_keyspaces` have, or had, a table with cdc = true: mutations of others hold nothing to publish. `unsure` are the
    ids that have, or had, a definition that was inferred. `metadata` is the epoch of Cassandra 6's metadata up to which
    all DDL is in here; None where the log has none.
    """

    timelines: Mapping[UUID, Timeline] = field(default_factory=lambda: MappingProxyType({}))
    single: Mapping[UUID, Table] = field(default_factory=lambda: MappingProxyType({}))
    current: frozenset[UUID] = frozenset()
    cdc_keyspaces: frozenset[str] = frozenset()
    unsure: frozenset[UUID] = frozenset()
    metadata: int | None = None

    def table(self, table_id: UUID, position: Position) -> Table | None:
        """The definition, cdc flag included, that holds for a mutation at `position`; None for an unknown id."""
        table = self.single.get(table_id)
        if table is not None:
            return table
        timeline = self.timelines.get(table_id)
        return None if timeline is None else timeline.at(position)

    def written_by(self, table_id: UUID, position: Position, metadata_epoch: int) -> Table | None:
        """The definition by which a writer of this metadata epoch wrote; None for an unknown id.

        Raises NewerSchemaError where that is of DDL that was not met yet: a later definition, whatever it is.
        """
        timeline = self.timelines.get(table_id)
        if self.metadata is not None and metadata_epoch > self.metadata:
            raise NewerSchemaError(table_id, metadata_epoch, self.metadata)
        return None if timeline is None else timeline.written_by(position, metadata_epoch)

    def up_to(self, metadata: int | None) -> SchemaHistory:
        """With all DDL of the epochs up to this one in it; never going back."""
        return self if metadata is None else replace(self, metadata=max(metadata, self.metadata or 0))

    def publishing(self, ids: Iterable[UUID]) -> SchemaHistory:
        """With cdc = true in all definitions of these ids."""
        timelines = dict(self.timelines)
        for id in set(ids) & timelines.keys():
            timelines[id] = replace(
                timelines[id], tables=tuple(replace(table, cdc=True) for table in timelines[id].tables)
            )
        return self._with(timelines, self.current, [timeline.newest for timeline in timelines.values()])

    def newest(self, table_id: UUID) -> Table | None:
        """The last definition that is known of an id."""
        timeline = self.timelines.get(table_id)
        return None if timeline is None else timeline.newest

    def ever_published(self, table_id: UUID) -> bool:
        """Whether a definition of an id has, or had, cdc = true."""
        timeline = self.timelines.get(table_id)
        return timeline is not None and any(table.cdc for table in timeline.tables)

    def inferred(self, table_id: UUID, position: Position) -> bool:
        """Whether the definition that holds for an id at a position was inferred, not said by the log."""
        timeline = self.timelines.get(table_id)
        return timeline is not None and timeline.inferred_at(position)

    def define(
        self, position: Position, tables: Iterable[Table], *, inferred: bool = False, metadata: int | None = None
    ) -> tuple[SchemaHistory, SchemaDifference]:
        """The history after DDL in the log at `position`: these definitions hold from there on, up to what is known of
        later positions. `inferred`: it is not the log that says so. `metadata`: the epoch that the DDL made."""
        timelines, added, altered = dict(self.timelines), list[Table](), list[Table]()
        defined, unsure = list(tables), set(self.unsure)
        for table in defined:
            timeline = timelines.get(table.id)
            added += [] if table.id in self.current else [table]
            if timeline is None:
                timelines[table.id] = Timeline((table,), (), (inferred,), (metadata,))
            else:
                previous = timeline.at(position) if timeline.since else timeline.newest
                # With epochs, one that is no other is kept too: a writer of its epoch may stand before it in the log.
                if previous != table or timeline.inferred_at(position) != inferred or metadata is not None:
                    timelines[table.id] = timeline.then(position, table, inferred, metadata)
                    altered += [table] if previous != table and table.id in self.current else []
            unsure |= {table.id} if inferred else set()
        difference = SchemaDifference(added=_sorted(added), altered=_sorted(altered))
        changed = self._with(timelines, self.current | {table.id for table in defined}, defined)
        return replace(changed, unsure=frozenset(unsure)), difference

    def drop(self, tables: Iterable[Table]) -> tuple[SchemaHistory, SchemaDifference]:
        """The history after tables were dropped: they are no longer current, but still known."""
        dropped = [table for table in tables if table.id in self.current]
        remaining = self.current - {table.id for table in dropped}
        return replace(self, current=remaining), SchemaDifference(dropped=_sorted(dropped))

    def learn(self, tables: Iterable[Table]) -> tuple[SchemaHistory, SchemaDifference]:
        """The history with the ids that it lacks; known definitions stay as they are, until the log is at their DDL.

        A new id can be learnt at any time, for the log names it only after its creation.
        """
        new = {table.id: table for table in tables if table.id not in self.timelines}
        timelines = {**self.timelines, **{id: Timeline((table,)) for id, table in new.items()}}
        return self._with(timelines, self.current | new.keys(), new.values()), SchemaDifference(
            added=_sorted(new.values())
        )

    def _with(
        self, timelines: Mapping[UUID, Timeline], current: frozenset[UUID], tables: Iterable[Table]
    ) -> SchemaHistory:
        keyspaces = self.cdc_keyspaces | {table.keyspace for table in tables if table.cdc}
        single = {id: timeline.tables[0] for id, timeline in timelines.items() if not timeline.since}
        proxied = MappingProxyType(dict(timelines))
        return SchemaHistory(proxied, MappingProxyType(single), current, keyspaces, self.unsure, self.metadata)

    def tracked(self) -> tuple[Table, ...]:
        """The cluster's present tables with cdc = true, by name."""
        newest = (timeline.newest for id, timeline in self.timelines.items() if id in self.current)
        return _sorted(table for table in newest if table.cdc)


def _sorted(tables: Iterable[Table]) -> tuple[Table, ...]:
    return tuple(sorted(tables, key=str))
