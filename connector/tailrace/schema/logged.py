"""What the log does to the definitions: one mutation's DDL, holes in the log, and writes that no DDL explains."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tailrace.commitlog.frames import Entry
from tailrace.commitlog.model import Mutation
from tailrace.commitlog.mutation import decode_mutation, oldest_write
from tailrace.errors import UnknownTableError
from tailrace.history.cells import NEVER
from tailrace.history.records import HistoryRecord
from tailrace.history.rows import KeyedRow, Name, SchemaChange
from tailrace.history.schema import SchemaDifference, SchemaHistory
from tailrace.schema.announcements import WriteTimes, ddl_events, inferred_event
from tailrace.schema.cluster_view import SYSTEM, told
from tailrace.schema.ddl_log import Gap
from tailrace.schema.definitions import LiveDefinitions, just_before
from tailrace.schema.truncations import metadata_epoch, truncations_in
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table

_LOG: Final = logging.getLogger("tailrace.capture")
_A_SECOND: Final = 1_000_000
# Coordinators date DDL by their own clocks, so that of another table may be dated after what stands behind it.
_A_MINUTE: Final = 60 * _A_SECOND


def apply_ddl(live: LiveDefinitions, entry: Entry) -> bool:
    """Apply one mutation of a watched table, in position order; whether it changed a definition.

    Raises ServiceError where it cannot be read, and neither can the cluster: then it is not passed over.
    """
    try:
        mutation = decode_mutation(entry.payload, entry.version, live.view.watched.get)
        if mutation.updates[0].table.keyspace == "system":
            _take(live, mutation, entry.position)
            live.applied = entry.position
            return False
        _give_way(live, live.rows.replaced(mutation), entry.position)
        previous_rows, (rows, change) = live.rows, live.rows.apply(mutation)
        objects, changes = live.objects.apply(mutation, rows)
    except (UnknownTableError, DecodeError) as error:
        return skip(live, entry, error)
    live.applied = entry.position
    live.rows, live.objects = rows, objects
    live.history = live.history.up_to(live.metadata_epoch)
    times, keyspace = WriteTimes(mutation), mutation.updates[0].key.decode()
    if keyspace not in SYSTEM:
        live.tell(ddl_events(previous_rows, mutation, times, change, changes, entry.position, live.metadata_epoch))
        for problem in change.problems:  # those of Cassandra's own tables are built in
            _LOG.warning("the DDL at %s cannot be used; changes of that table are parked: %s", entry.position, problem)
    dropped = _drop(live, change, entry.position)
    added, altered = list[Table](), list[Table]()
    for table in change.defined:
        unsure = (table.keyspace, table.name) in live.unsure
        difference = live.define(table, entry.position, inferred=unsure, metadata=live.metadata_epoch)
        added += difference.added
        altered += difference.altered
    settle(live, entry.position, times.newest)
    return bool(told(SchemaDifference(tuple(added), tuple(altered), dropped), entry.position))


def _drop(live: LiveDefinitions, change: SchemaChange, position: Position) -> tuple[Table, ...]:
    for table in change.dropped:
        live.truncations.forget(table.id)
    defined_ids = {table.id for table in change.defined}
    return live.drop((table for table in change.dropped if table.id not in defined_ids), position).dropped


def _give_way(live: LiveDefinitions, names: Iterable[Name], position: Position) -> None:
    """Tables whose DROP was missed are gone, and so are their rows: what was read last is of the ones that followed."""
    for name in names:
        live.drop((live.rows.definitions[name],), position)
        live.rows = live.rows.without(name).with_base(live.view.rows_of(name), read=True)


def _take(live: LiveDefinitions, mutation: Mutation, position: Position) -> None:
    """What the node logs of itself: truncations, and the metadata's epochs."""
    if mutation.updates[0].table.name == "local_metadata_log":
        live.metadata_epoch = int.from_bytes(mutation.updates[0].key, "big")
        live.history = live.history.up_to(live.metadata_epoch - 1)
    elif (epoch := metadata_epoch(mutation)) is not None:
        live.metadata_epoch = max(epoch, live.metadata_epoch or 0)
        live.history = live.history.up_to(epoch)
    for truncation in truncations_in(mutation, position):
        if live.history.table(truncation.table_id, position) is not None and live.truncations.logged(truncation):
            live.truncated(truncation)


def skip(live: LiveDefinitions, entry: Entry, error: Exception) -> bool:
    """Pass over a mutation that cannot be read, a hole as small as itself: the cluster's definitions are taken.

    Whether that changed any. Raises ServiceError, then it is not passed over.
    """
    words = f"DDL at {entry.position} in {entry.file} cannot be read: {error}; the cluster's word is taken for it"
    live.learn()
    live.applied = entry.position
    live.inferred["system_schema"] = words
    _LOG.error("%s", words)
    written = oldest_write(entry.payload, entry.version)
    return cross(live, Gap(just_before(entry), entry.position, None if written is None else written + _A_SECOND))


def cross(live: LiveDefinitions, gap: Gap) -> bool:
    """Pass over a stretch of the log that could not be read, after a read of the cluster; whether that changed any.

    A table whose rows are newer than the log's, and older than what follows the gap, was altered in the gap. Its
    present definition holds from there on. A table whose rows are newer still was altered later, and its DDL follows
    in the log. It may have been altered in the gap too, so its changes up to that DDL are marked. So are those of a
    table that may have been created in the gap. What was read is kept then, as a successor has nothing else.
    """
    changed, view = False, live.view
    live.history = live.history.up_to(view.state.metadata)
    for truncation in live.truncations.missed(view.state.truncated, gap.until, gap.written):
        live.truncated(truncation)
    for name, (table, written) in view.present().items():
        newest, unseen = live.history.newest(table.id), live.is_unseen(table)
        if unseen:
            _read_again(live, table)
        if written <= (live.rows.logged(name) if unseen else live.rows.written(name)):
            # Its own rows are known; but those of its user types?
            written = view.types_written(table) if newest is not None and newest != table else NEVER
        if written == NEVER:
            continue
        words = f"altered unseen between {gap.after} and {gap.until}"
        if gap.written is None or written < gap.written:
            changed |= live.infer(table, gap.until, words)
        elif unseen and table == live.rows.definitions.get(name):
            live.define(table, gap.until, inferred=True)
        elif newest is not None and newest == live.rows.definitions.get(name):
            live.define(newest, gap.until, inferred=True)
            live.note(newest, f"may have been {words}: changes up to its next DDL are marked schema_inferred")
    _doubt_dropped(live, gap)
    return changed


def _read_again(live: LiveDefinitions, table: Table) -> None:
    """Take what was read last of a table that nothing else has told of.

    An earlier read may have been of it, or its name have been another table's until the DDL just before.
    """
    name = (table.keyspace, table.name)
    existing = live.rows.definitions.get(name)
    if name in live.rows.bases and existing is not None and existing.id == table.id:
        live.rows = live.rows.without(name)
    live.rows = live.rows.with_base(live.view.rows_of(name), read=True)


def _doubt_dropped(live: LiveDefinitions, gap: Gap) -> None:
    """Tables that the cluster has no longer may have been altered in a gap, before they were dropped."""
    for id in live.history.current - live.view.tables.keys():
        table = live.history.newest(id)
        if table is None or table.keyspace in SYSTEM or live.history.inferred(id, gap.until):
            continue
        if table == live.rows.definitions.get((table.keyspace, table.name)):
            live.define(table, gap.until, inferred=True)


def settle(live: LiveDefinitions, position: Position, reached: int) -> None:
    """Tables of which the log has come to the cluster's newest DDL are sure again, from a position on.

    `reached` is the write time of the DDL there: that of others which is much older stands before it, or in a hole.
    """
    for name, (table, written) in (live.view.present() if live.unsure else {}).items():
        logged = live.rows.logged(name)
        if name not in live.unsure or (logged < written and reached <= written + _A_MINUTE):
            continue
        if logged <= written:
            live.infer(table, position, "altered before, unseen")
        elif (definition := live.rows.definitions.get(name)) is not None:
            live.define(definition, position, inferred=False)


def place_reads(live: LiveDefinitions, began: int) -> None:
    """Take what was read, and is older than the log, as of the log's place; it began about then (microseconds).

    Its DDL is not in the log. What the log has of it comes from a node that was away, and is older still.
    """
    log_start = began - _A_MINUTE
    names = {
        name
        for name, table in live.rows.definitions.items()
        if table.id not in live.learned and name not in live.unsure and live.rows.written(name) < log_start
    }
    types = (row for row in live.view.rows if row.table == "types" and row.written < log_start)
    live.rows = live.rows.as_read(names, read=False).with_base(types, read=False)


def as_read(live: LiveDefinitions, entry: Entry) -> SchemaHistory:
    """The history in which the columns that were read last hold from a mutation on, for its tables.

    The cdc flag is the log's still: the cluster's may be that of DDL which stands further on.
    """
    position, history = just_before(entry), live.history
    pairs = (
        (table, history.table(id, position)) for id, table in live.view.tables.items() if id.bytes in entry.payload
    )
    used = (replace(table, cdc=existing.cdc) for table, existing in pairs if existing is not None)
    changed = (table for table in used if table != history.table(table.id, position))
    trial = history.define(position, changed, inferred=True)[0]
    # A log that tells of epochs will tell of the one that a write is ahead by; in another the read is all there is.
    return trial if live.metadata_epoch is not None else trial.up_to(live.view.state.metadata)


def adopt(live: LiveDefinitions, trial: SchemaHistory, entry: Entry) -> None:
    """Let a history of `as_read` be the present one, as it explains what the log's own word does not."""
    position = just_before(entry)
    for id, timeline in trial.timelines.items():
        if timeline is live.history.timelines.get(id):
            continue
        table = timeline.at(position)
        name = (table.keyspace, table.name)
        rows = tuple(_with_flag(row, table.cdc) for row in live.view.rows_of(name))
        if live.rows.definitions.get(name) == live.history.table(id, position):  # no DDL of it was read ahead
            live.rows = live.rows.without(name).with_base(rows, read=True)
        live.unsure.add(name)
        live.unsent.add(HistoryRecord(position, id, name, rows, inferred=True))
        previous, written = live.history.table(id, position), max(row.written for row in rows)
        live.announced.tell(inferred_event(previous, table, position, written), (position, id))
        untold = "a later definition than" if trial.metadata != live.history.metadata else "columns that no"
        live.note(table, f"a write at {entry.position} has {untold} DDL told of: the cluster's word is taken")
    live.history = trial


def _with_flag(row: KeyedRow, cdc: bool) -> KeyedRow:
    return replace(row, row={**row.row, "cdc": cdc}) if row.table == "tables" else row
