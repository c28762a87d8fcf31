"""The definitions that a run begins with: of Kafka's schema history, or at a new host of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from tailrace.history.events import Subject
from tailrace.history.records import BEGINNING, HistoryRecord, history_of
from tailrace.history.rows import SchemaRows
from tailrace.schema.announcements import object_told, objects_of
from tailrace.schema.cluster_view import SYSTEM
from tailrace.schema.definitions import LiveDefinitions
from tailrace.state import Resume

_LOG: Final = logging.getLogger("tailrace.capture")


def restore(live: LiveDefinitions, records: Sequence[HistoryRecord], resume: Resume) -> None:
    """Begin with what the log said so far. What was read of the cluster holds for ids that the records lack."""
    last = {record.table_id: record for record in records}
    dropped = (record for record in last.values() if not (record.rows or record.unreadable))
    live.dropped = {record.table_id: record.position for record in dropped if record.subject is Subject.TABLE}
    unreadable = [record for record in last.values() if record.unreadable]
    readable = [record for record in records if not (record.unreadable or last[record.table_id].unreadable)]
    newest = {(record.subject, record.name): record for record in readable}.values()
    live.unsure = {record.name for record in newest if record.inferred}
    ordered = sorted(newest, key=lambda record: record.position)
    rows = [row for record in ordered if record.subject is not Subject.KEYSPACE for row in record.rows]
    live.objects = objects_of(ordered)
    if not live.objects.known:  # a history from before they were kept
        live.objects, _ = live.view.objects(types=False)
    live.rows = SchemaRows().with_base(rows, read=False).with_base(live.view.rows, read=True)
    live.applied = max((live.applied, *(record.position for record in records)))
    read = [timeline.newest for timeline in live.history.timelines.values()]
    live.history = history_of(records).learn(read)[0]
    for record in unreadable:
        _replace(live, record)
    if resume.metadata is not None:
        up_to, live.metadata_epoch = resume.metadata
        live.history = live.history.up_to(up_to)


def seed(live: LiveDefinitions) -> None:
    """Begin with the cluster's definitions, which hold from the beginning of the log."""
    tables = [
        HistoryRecord(BEGINNING, table.id, name, live.rows.rows(name))
        for name, table in sorted(live.rows.definitions.items())
        if name[0] not in SYSTEM
    ]
    live.objects, objects = live.view.objects()
    live.unsent.replace([*tables, *(object_told(change, BEGINNING)[1] for change in objects)])
    live.history = live.history.up_to(live.view.state.metadata)


def _replace(live: LiveDefinitions, record: HistoryRecord) -> None:
    """Take the cluster's present definition where Kafka's record of the last one cannot be read."""
    words = f"the record of the schema history at {record.position} cannot be read ({record.unreadable})"
    table = live.view.tables.get(record.table_id)
    if table is None:
        live.inferred[f"table id {record.table_id}"] = words
        _LOG.error("%s, and the cluster has no table with id %s: the record is skipped", words, record.table_id)
        return
    live.history, _ = live.history.define(record.position, (table,), inferred=True)
    live.unsure.add((table.keyspace, table.name))
    live.note(table, f"{words}: the cluster's present definition is taken, and its changes are marked")
