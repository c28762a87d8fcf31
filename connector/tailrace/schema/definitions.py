"""The definitions that hold by now, and what the next commit records of them.

Five sources change them. Reads of the cluster are `learn` here, records of an earlier run in restored.py. DDL in the
log is in logged.py, holes in the log in gaps.py, writes without DDL in writes.py.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Final
from uuid import UUID

from tailrace.commitlog.frames import Entry
from tailrace.history.objects import Objects, types_of
from tailrace.history.records import BEGINNING, HistoryRecord
from tailrace.history.rows import Name, SchemaRows
from tailrace.history.schema import SchemaDifference, SchemaHistory
from tailrace.schema.announcements import Announcements, Told, inferred_event, object_told, truncation_event
from tailrace.schema.cluster_view import SYSTEM, ClusterView, told
from tailrace.schema.truncations import Truncations
from tailrace.state import Truncation
from tailrace_schemas.position import Position
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table

# About so many bytes go into one transaction, and are held in memory: DDL behind them waits in the log.
_PIECE_BYTES: Final = 4 << 20
_LOG: Final = logging.getLogger("tailrace.capture")


@dataclass(slots=True)
class UnsentRecords:
    """Records of the schema history that are not committed yet, in pieces that one transaction can take.

    In the order in which they came; `most` bytes, about, are one piece.

    What the log's DDL made goes as a whole: `full` says when no more of it should be read. What a new host read of the
    cluster (at BEGINNING, before all else) may be any number of tables, and is cut.
    """

    most: int = _PIECE_BYTES
    _records: list[HistoryRecord] = field(default_factory=list)
    _weight: int = 0

    def __bool__(self) -> bool:
        return bool(self._records)

    def add(self, record: HistoryRecord) -> None:
        """One more."""
        self._records.append(record)
        self._weight += record.weight

    def replace(self, records: Iterable[HistoryRecord]) -> None:
        """These, and no others."""
        self._records = list(records)
        self._weight = sum(record.weight for record in self._records)

    def remove(self, committed: Collection[tuple[Position, UUID]]) -> None:
        """Kafka has the records of these positions and table ids."""
        self.replace(record for record in self._records if (record.position, record.table_id) not in committed)

    def full(self) -> bool:
        """Whether there are too many: commit, before more come."""
        return self._weight > self.most

    @property
    def piece(self) -> list[HistoryRecord]:
        """What the next transaction takes."""
        return self._records[: self._size()]

    @property
    def is_whole(self) -> bool:
        """Whether that is everything."""
        return self._size() == len(self._records)

    def sent(self) -> None:
        """The piece is committed."""
        self.replace(self._records[self._size() :])

    def _size(self) -> int:
        if self._weight <= self.most:
            return len(self._records)
        seeds = list(takewhile(lambda record: record.position == BEGINNING, self._records))
        fitting = sum(size <= self.most for size in accumulate(record.weight for record in seeds))
        return len(self._records) if fitting == len(seeds) else max(1, fitting)


class LiveDefinitions:
    """Mutable; one thread. `view` is what was read of the cluster last."""

    def __init__(self, view: ClusterView, unsent: UnsentRecords) -> None:
        self.view = view
        self.unsent = unsent
        self.announced = Announcements()
        self.truncations = Truncations()
        """Those that are read and not yet published."""
        self.history = SchemaHistory().learn(system_tables())[0]
        self.rows = SchemaRows()
        """The rows of `system_schema` after all DDL that was applied."""
        self.objects = Objects()
        """The keyspaces and types of users, after the same."""
        self.dropped: dict[UUID, Position] = {}
        """Where tables were dropped that were not created again."""
        self.learned: set[UUID] = set()
        """Tables that were read, and of whose creation neither the log nor a record of ours has told."""
        self.unsure: set[Name] = set()
        """Tables whose newest definition was inferred."""
        self.inferred: dict[str, str] = {}
        """What was concluded, not read in the log, by table, for people."""
        self.metadata_epoch: int | None = None
        """The metadata epoch whose DDL comes next in the log, or came last; None where the log tells of none."""
        self.applied = BEGINNING
        """Up to where the log's DDL is applied."""
        self.read_up_to: Position | None = None
        """Up to where the log was read for DDL."""

    def learn(self) -> SchemaDifference:
        """Read the cluster's schema and take the ids that are new in it. Raises ServiceError, then nothing changed.

        Definitions that are known stay, until the log is at their DDL: its older mutations were written under them.
        """
        self.view.read()
        self.rows = self.rows.with_base(self.view.rows, read=True)
        self.history, difference = self.history.learn(self.view.tables.values())
        self.learned |= {table.id for table in difference.added}
        return told(difference)

    def is_unseen(self, table: Table) -> bool:
        """Whether nothing but a read has told that a table was created."""
        return table.id in self.learned or table.id in self.dropped

    def define(
        self, table: Table, position: Position, *, inferred: bool, metadata: int | None = None
    ) -> SchemaDifference:
        """A definition, which its rows make by now, holds from a position on; for sure, or not."""
        name = (table.keyspace, table.name)
        self.learned.discard(table.id)
        if (dropped := self.dropped.pop(table.id, None)) is not None:
            self._empty(table, dropped, position)
        self.history, difference = self.history.define(position, (table,), inferred=inferred, metadata=metadata)
        if name[0] not in SYSTEM:
            self.unsent.add(HistoryRecord(position, table.id, name, self.rows.rows(name), inferred, metadata))
        if inferred:
            self.unsure.add(name)
        else:
            self.unsure.discard(name)
        return difference

    def drop(self, tables: Iterable[Table], position: Position) -> SchemaDifference:
        """Tables are gone from a position on."""
        dropped = tuple(tables)
        self.history, difference = self.history.drop(dropped)
        for table in dropped:
            self.unsure.discard((table.keyspace, table.name))
            if table.keyspace not in SYSTEM:
                self.dropped[table.id] = position
                name = (table.keyspace, table.name)
                self.unsent.add(HistoryRecord(position, table.id, name, dropped=self.rows.logged(name)))
        return difference

    def _empty(self, table: Table, dropped: Position, position: Position) -> None:
        """A table is created again with its id (WITH ID): all up to its DROP is gone, as by a truncation there."""
        if not (table.cdc or self.history.ever_published(table.id)):
            return
        # Up to the DROP and not to the CREATE: on Cassandra 6 a write may precede the DDL of its table.
        upto = (dropped.segment, dropped.offset) if dropped.epoch == position.epoch else (0, 0)
        written = self.rows.written((table.keyspace, table.name))
        self.truncations.add(Truncation(position, table.id, written // 1000, upto), self.read_up_to)

    def infer(self, table: Table, position: Position, words: str) -> bool:
        """The cluster's definition holds from a position on, though the log has no DDL of it; whether it is new."""
        name, unseen = (table.keyspace, table.name), self.is_unseen(table)
        previous = self.rows.definitions.get(name)
        self.rows = self.rows.without(name).with_base(self.view.rows_of(name), read=False, newer=True)
        self.objects, types = self.objects.become(types_of(self.rows.rows(name)))
        written = self.view.types_written(table)
        self.tell(object_told(change, position, written, inferred=True) for change in types)
        if previous is not None and previous.id != table.id:
            self.drop((previous,), position)
        if not self.define(table, position, inferred=False) and not unseen:
            return False
        written = max(self.rows.written(name), self.view.types_written(table))
        event = inferred_event(None if unseen else previous, table, position, written)
        self.announced.tell(event, (position, table.id))
        self.note(table, f"{words}: the cluster's present definition is taken from {position} on")
        return True

    def truncated(self, truncation: Truncation) -> None:
        """A table was truncated."""
        table = self.history.table(truncation.table_id, truncation.position)
        if table is None or table.keyspace in SYSTEM:
            return
        self.announced.tell(truncation_event(truncation, table))
        if table.cdc:
            self.truncations.add(truncation, self.read_up_to)

    def tell(self, announcements: Iterable[Told]) -> None:
        """Events for `.schema-changes`, each with the record that goes with it."""
        for event, record in announcements:
            if record is not None:
                self.unsent.add(record)
                self.announced.tell(event, (record.position, record.table_id))
            elif event.table is not None:
                self.announced.tell(event, (event.position, event.table.id))

    def note(self, table: Table, words: str) -> None:
        """What was concluded of a table, for people."""
        self.inferred[str(table)] = words
        _LOG.warning("%s: %s", table, words)


def just_before(entry: Entry) -> Position:
    """A position from which on a definition holds for this mutation, and for none before it."""
    return Position(entry.position.epoch, entry.position.segment, entry.position.offset - 1)
