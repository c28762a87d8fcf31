"""What a sink knows of one source table as a whole: its definitions as one, its truncations, its purge horizon.

    {"record": 1, "definition": {...}, "announced": n, "truncations": "hex", "purged_to": n, "own": {...}}

`definition` is as `table_to_json` writes it, `truncations` as `encode_truncations` does. The last three are left out
where nothing is known. `own` has what one store keeps beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from tailrace_schemas.change import Change, Op, Origin, record_times
from tailrace_schemas.cql.types import CqlType, parts
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.formats import require_format
from tailrace_schemas.table import Column, ColumnKind, DroppedColumn, Table
from tailrace_schemas.table_json import table_from_json, table_to_json
from tailrace_spark.batch.delivery import DeadLetter, Delivered
from tailrace_spark.merge.batch_changes import TruncatedBatch, truncate_batch
from tailrace_spark.rowstate.codec import decode_truncations, encode_truncations
from tailrace_spark.rowstate.truncation import EVERYTHING, TruncationState

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class TableRecord:
    """What is known of one table id; a store's own record adds what only it keeps.

    `announced`: when the newest definition was (see `Delivered`); -1: not known. `purged_to`: the largest write
    time, in microseconds, of deletions that were forgotten; None: of none.
    """

    definition: Table
    announced: int = -1
    truncations: TruncationState = field(default_factory=TruncationState)
    purged_to: int | None = None


Record = TypeVar("Record", bound=TableRecord)


def define(record: Record, table: Table, announced: int) -> Record:
    """With a definition that another writer has of the same table id; `announced` says which of them gives names."""
    # A definition that is announced again is the newest once more: a column that was renamed back has its old name.
    # Agents learn of DDL at different moments, so an older one may come after it.
    newer = announced >= record.announced
    definition = merge_definitions(record.definition, table, second_newer=newer)
    return replace(record, definition=definition, announced=max(announced, record.announced))


def truncate(record: Record, changes: Sequence[Delivered], ring_delay: float) -> tuple[Record, TruncatedBatch]:
    """With a batch's truncations of the table, and what they and earlier ones take; see `truncate_batch`."""
    truncated = truncate_batch(record.truncations, changes, ring_delay)
    # A truncation of everything took the deletions too that purging has forgotten.
    purged_to = None if truncated.erased == EVERYTHING else record.purged_to
    return replace(record, truncations=truncated.truncations, purged_to=purged_to), truncated


def purge(record: Record, written: Iterable[int]) -> Record:
    """After deletions of these write times, in microseconds, were forgotten; until a truncation it only grows."""
    # What purged tombstones covered came before them, so one write time tells for all of them what is late.
    former = () if record.purged_to is None else (record.purged_to,)
    return replace(record, purged_to=max((*written, *former), default=None))


def encode_record(record: TableRecord, own: Mapping[str, Any] | None = None) -> str:
    """The record as JSON; equal ones give equal texts. `own`: what the store keeps beside it, JSON values by name."""
    members: dict[str, Any] = {
        "record": VERSION,
        "definition": table_to_json(record.definition),
        "announced": record.announced,
    }
    if record.truncations != TruncationState():
        members["truncations"] = encode_truncations(record.truncations).hex()
    if record.purged_to is not None:
        members["purged_to"] = record.purged_to
    if own:
        members["own"] = dict(own)
    return json.dumps(members, sort_keys=True)


def decode_record(encoded: str | bytes) -> tuple[TableRecord, Mapping[str, Any]]:
    """The record of a text, and what the store keeps beside it.

    Raises CorruptError for what is none, and SettingsError for another version's.
    """
    try:
        members = json.loads(encoded)
        # It ends the stream: as one table's error it would make its changes dead letters, and a later batch would
        # write a record by half of what is known.
        otherwise = ", or give the sink another place"
        require_format("the record of a table in the sink", members.get("record"), VERSION, otherwise=otherwise)
        purged_to, truncations = members.get("purged_to"), members.get("truncations")
        additions: Mapping[str, Any] = dict(members.get("own", {}))
        record = TableRecord(
            table_from_json(members["definition"]),
            int(members["announced"]),
            TruncationState() if truncations is None else decode_truncations(bytes.fromhex(truncations)),
            None if purged_to is None else int(purged_to),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptError(f"a table's record is damaged: {type(error).__name__}: {error}") from error
    return record, additions


def merge_definitions(first: Table, second: Table, *, second_newer: bool = True) -> Table:
    """The definition that both know together, of one table id.

    A column was dropped when the definition that knows its latest drop says so. With no drop between them, a column
    that one of them has was added. Of two types the wider holds: user types only ever gain fields. What was renamed,
    key columns and fields of user types, has the name that the newer one gives it: the second, unless told otherwise.
    All but these names comes out the same in every order.
    """
    if first.id != second.id:
        raise ValueError(f"{first} has two table ids, {first.id} and {second.id}: they are two tables")
    # Agents learn of DDL at different moments, so a batch may have changes under both definitions.
    if first == second:
        return first
    older, newer = (first, second) if second_newer else (second, first)
    columns: list[Column] = []
    dropped: list[DroppedColumn] = []
    for name in sorted({c.name_bytes for t in (first, second) for c in (*t.columns, *_dropped(t).values())}):
        live, drop = _decide(name, older, newer)
        if live is not None:
            columns.append(live)
        if drop is not None:
            dropped.append(drop)
    return replace(
        first,
        partition_key=newer.partition_key,
        clustering=newer.clustering,
        static=tuple(c for c in columns if c.kind is ColumnKind.STATIC),
        regular=tuple(c for c in columns if c.kind is not ColumnKind.STATIC),
        dropped=tuple(dropped),
    )


def _dropped(table: Table) -> dict[bytes, Column]:
    return {drop.column.name_bytes: drop.column for drop in table.dropped}


def _decide(name: bytes, older: Table, newer: Table) -> tuple[Column | None, DroppedColumn | None]:
    """(the live column of this name, its latest drop), each None where there is none."""
    older_drop, newer_drop = _drop(older, name), _drop(newer, name)
    drops = [drop for drop in (older_drop, newer_drop) if drop is not None]
    latest = max(drops, key=lambda drop: drop.dropped_at, default=None)
    dropped_at = None if latest is None else latest.dropped_at
    # Drop times order what happened to a name: after DROP, ADD, DROP TableMetadata.droppedColumns has the latest.
    knowing = [t for t, drop in ((newer, newer_drop), (older, older_drop)) if (drop and drop.dropped_at) == dropped_at]
    live = [column for t in knowing for column in t.columns if column.name_bytes == name]
    return max(live, key=lambda column: _width(column.type), default=None), latest  # the first of equals


def _width(cql_type: CqlType) -> int:
    """Grows with each field that a user type in it gains."""
    # ALTER TYPE can only add fields (AlterTypeStatement), and ALTER TABLE no longer changes types (CASSANDRA-12443).
    return sum(1 + len(nested.args) for nested in set(parts((cql_type,))))


def _drop(table: Table, name: bytes) -> DroppedColumn | None:
    return next((drop for drop in table.dropped if drop.column.name_bytes == name), None)


def newest_definition(changes: Sequence[Delivered]) -> tuple[Table, int]:
    """The definition that these changes of one table have together, and when it was announced."""
    shapes = {id(delivered.change.table): (delivered.change.table, delivered.announced) for delivered in changes}
    (table, announced), *further = shapes.values()
    for definition, offset in further:
        table = merge_definitions(table, definition, second_newer=offset >= announced)
        announced = max(announced, offset)
    return table, announced


def split(changes: Sequence[Delivered], purged_to: int | None) -> tuple[Sequence[Delivered], list[DeadLetter]]:
    """Changes of one table that may be merged, and those that come too late.

    `purged_to` is the largest write time, in microseconds, of what was purged of the table; None: nothing was.
    """
    if purged_to is None or not any(late(delivered.change, purged_to) for delivered in changes):
        return changes, []
    reason = f"written at or before {purged_to}, up to which deletions are forgotten: see merge_horizon_seconds"
    in_time = [delivered for delivered in changes if not late(delivered.change, purged_to)]
    return in_time, [
        DeadLetter(delivered.record_id, reason, delivered.message)
        for delivered in changes
        if late(delivered.change, purged_to)
    ]


def late(change: Change, purged_to: int) -> bool:
    """Whether a change of the log is as old as what was purged. Snapshot rows are never late."""
    # A snapshot reads what Cassandra has now: the deletions that it met are in the answer already.
    if change.op in (Op.READ, Op.TRUNCATE):
        return False
    if change.source is not None and change.source.origin is Origin.SNAPSHOT:
        return False
    # By the record's time (docs/contracts.md 3), so that a change is judged alike by all stores, decoded or not.
    return record_times(change)[0] <= purged_to
