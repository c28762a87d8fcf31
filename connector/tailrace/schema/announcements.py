"""The events of `<prefix>.schema-changes`: of DDL mutations, of conclusions, and of truncations."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

from tailrace.commitlog.model import Mutation, RangeMarker, Row
from tailrace.history.cells import NEVER
from tailrace.history.events import EventKind, SchemaEvent, Subject, changed_words, table_id_of
from tailrace.history.objects import OPTIONS, ObjectChange, Objects, types_of
from tailrace.history.records import HistoryRecord
from tailrace.history.rows import KeyedRow, SchemaChange, SchemaRows
from tailrace.history.written import TABLES, rows_by_table_of
from tailrace.state import Truncation
from tailrace_schemas.change import Deletion
from tailrace_schemas.cql.types import user_types_in
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table

Known = tuple[Position, UUID]
"""What tells records of the schema history apart."""


@dataclass(slots=True)
class Announcements:
    """Events that are not committed yet; an event goes with the record of the schema history that it came with."""

    unsent: list[SchemaEvent] = field(default_factory=list)
    _all: list[tuple[SchemaEvent, Known | None]] = field(default_factory=list)
    _silent: Position | None = None

    def begin(self, recorded: Container[Known], read_up_to: Position | None, *, from_start: bool = False) -> None:
        """A session with Kafka begins, which has these records, and the log's DDL up to a position.

        `from_start`: DDL is read from the oldest segment on all the same; events published before are not repeated.
        """
        if from_start:
            self._silent = read_up_to
        self.unsent = [
            event
            for event, record in self._all
            if (record not in recorded if record is not None else read_up_to is None or event.position > read_up_to)
        ]

    def tell(self, event: SchemaEvent, record: Known | None = None) -> None:
        """One more, and which history record goes with it."""
        if self._silent is not None and event.position <= self._silent:
            return
        index = sum(announced.position == event.position for announced, _ in self._all)
        event = replace(event, index=index)
        self._all.append((event, record))
        self.unsent.append(event)

    def sent(self) -> None:
        """All are committed."""
        self.unsent, self._all = [], []


def table_events(
    previous: SchemaRows,
    mutation: Mutation,
    times: WriteTimes,
    change: SchemaChange,
    position: Position,
    metadata: int | None,
) -> Iterator[SchemaEvent]:
    """What a mutation of `system_schema` did to tables; `previous` are the rows that it met, `times` its own."""
    rows_by_table = rows_by_table_of(mutation)

    def event(kind: EventKind, table: Table, changed: tuple[str, ...] = ()) -> SchemaEvent:
        return SchemaEvent(
            position=position,
            kind=kind,
            subject=Subject.TABLE,
            keyspace=table.keyspace,
            name=table.name,
            table=table,
            changed=changed,
            written=times.of_table(table),
            metadata=metadata,
        )

    yield from (event(EventKind.DROPPED, table) for table in change.dropped)
    for table in change.defined:
        name = (table.keyspace, table.name)
        existing = previous.definitions.get(name)
        if existing is None or existing.id != table.id or previous.creates(rows_by_table, name):
            yield event(EventKind.CREATED, table)
        else:
            yield event(EventKind.ALTERED, table, changed_words(existing, table))


Told = tuple[SchemaEvent, HistoryRecord | None]
"""An event, and what the schema history keeps of it where that is not a table's record."""


def ddl_events(
    previous: SchemaRows,
    mutation: Mutation,
    times: WriteTimes,
    change: SchemaChange,
    objects: Iterable[ObjectChange],
    position: Position,
    metadata: int | None,
) -> list[Told]:
    """What a mutation of `system_schema` did, in the order of single statements. `previous` are the rows that it met,
    `times` its own.

    A keyspace comes before its types, those before tables; dropped ones in reverse.
    """
    of_objects = [object_told(altered, position, times.of_object(altered), metadata) for altered in objects]
    defined = [announced for announced in of_objects if announced[0].kind is not EventKind.DROPPED]
    dropped = [announced for announced in of_objects if announced[0].kind is EventKind.DROPPED]
    tables = ((event, None) for event in table_events(previous, mutation, times, change, position, metadata))
    return [*defined, *tables, *dropped]


def object_told(
    change: ObjectChange, position: Position, written: int = 0, metadata: int | None = None, *, inferred: bool = False
) -> tuple[SchemaEvent, HistoryRecord]:
    """What happened to a keyspace or a user type, and what is kept, so that the next change is known for one."""
    subject = Subject.TYPE if change.name else Subject.KEYSPACE
    event = SchemaEvent(
        position=position,
        kind=change.kind,
        subject=subject,
        keyspace=change.keyspace,
        name=change.name,
        details=change.after,
        changed=change.changed,
        written=written,
        metadata=metadata,
        inferred=inferred,
    )
    table_id, name = table_id_of(subject, change.keyspace, change.name), (change.keyspace, change.name)
    return event, HistoryRecord(position, table_id, name, _rows_of(change, written), subject=subject)


def _rows_of(change: ObjectChange, written: int) -> tuple[KeyedRow, ...]:
    if change.kind is EventKind.DROPPED:
        return ()
    if not change.name:
        return (KeyedRow("keyspaces", {"keyspace_name": change.keyspace, **change.after}, written),)
    fields = {"field_names": list(change.after), "field_types": list(change.after.values())}
    return (KeyedRow("types", {"keyspace_name": change.keyspace, "type_name": change.name, **fields}, written),)


def objects_of(records: Iterable[HistoryRecord]) -> Objects:
    """The keyspaces and types that records in the order of their positions leave."""
    objects = Objects()
    for record in records:
        if record.subject is Subject.KEYSPACE:
            options = [{name: row.row[name] for name in OPTIONS} for row in record.rows]
            written = {record.name[0]: max((row.written for row in record.rows), default=NEVER)}
            objects, _ = objects.become({record.name: options[0] if options else None}, written)
        elif record.subject is Subject.TYPE:
            objects, _ = objects.become({record.name: None, **types_of(record.rows)})
    return objects


def inferred_event(previous: Table | None, table: Table, position: Position, written: int) -> SchemaEvent:
    """A definition that was concluded."""
    created = previous is None or previous.id != table.id
    return SchemaEvent(
        position=position,
        kind=EventKind.CREATED if created else EventKind.ALTERED,
        subject=Subject.TABLE,
        keyspace=table.keyspace,
        name=table.name,
        table=table,
        changed=() if created else changed_words(previous, table),
        written=written,
        inferred=True,
    )


def truncation_event(truncation: Truncation, table: Table) -> SchemaEvent:
    """A table was truncated."""
    return SchemaEvent(
        position=truncation.position,
        kind=EventKind.TRUNCATED,
        subject=Subject.TABLE,
        keyspace=table.keyspace,
        name=table.name,
        table=table,
        written=truncation.written,
        upto=truncation.upto,
        inferred=truncation.inferred,
    )


class WriteTimes:
    """The newest write times in a mutation, in microseconds: of DDL, the statement's.

    A node that was away gets the rows of many statements in one mutation: each thing has its own. `newest` is of all.
    """

    def __init__(self, mutation: Mutation) -> None:
        self._rows: dict[tuple[str, str], int] = {}
        self._deletions = NEVER
        for update in mutation.updates:
            of_tables = update.table.name in TABLES and update.table.name != "types"
            for item in update.items:
                if isinstance(item, RangeMarker):
                    self._delete(item.open, item.close)
                    continue
                name = (item.clustering[0] or b"").decode(errors="replace") if item.clustering else ""
                key = ("tables" if of_tables else update.table.name, name)
                self._rows[key] = max(_newest(item), self._rows.get(key, NEVER))
            self._delete(update.deletion)
        self.newest = max([self._deletions, *self._rows.values()])

    def _delete(self, *deletions: Deletion | None) -> None:
        self._deletions = max([self._deletions, *(deletion.written for deletion in deletions if deletion is not None)])

    def of_table(self, table: Table) -> int:
        """That of a table's rows, and of its user types'."""
        columns = (*table.key, *table.columns, *(dropped.column for dropped in table.dropped))
        types = user_types_in(column.type for column in columns)
        return self._of([("tables", table.name), *(("types", user_type.name) for user_type in types)])

    def of_object(self, change: ObjectChange) -> int:
        """That of a user type, or of a keyspace."""
        return self._of([("types" if change.name else "keyspaces", change.name)])

    def _of(self, keys: list[tuple[str, str]]) -> int:
        written = max([self._deletions, *(self._rows.get(key, NEVER) for key in keys)])
        return self.newest if written == NEVER else written


def _newest(row: Row) -> int:
    return max((timed.written for timed in (row.marker, row.deletion, *row.cells) if timed is not None), default=NEVER)
