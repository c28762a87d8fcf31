"""Writes that no DDL of the log explains: their tables by the cluster's present definitions."""

from __future__ import annotations

from dataclasses import replace

from tailrace.commitlog.frames import Entry
from tailrace.history.records import HistoryRecord
from tailrace.history.rows import KeyedRow
from tailrace.history.schema import SchemaHistory
from tailrace.schema.announcements import inferred_event
from tailrace.schema.definitions import LiveDefinitions, just_before


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
