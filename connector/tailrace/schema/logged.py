"""DDL in the log: what one mutation of a watched table changes."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.commitlog.frames import Entry
from tailrace.commitlog.model import Mutation
from tailrace.commitlog.mutation import decode_mutation
from tailrace.errors import UnknownTableError
from tailrace.history.rows import SchemaChange
from tailrace.history.schema import SchemaDifference
from tailrace.schema.announcements import ddl_events
from tailrace.schema.cluster_view import SYSTEM, told
from tailrace.schema.definitions import LiveDefinitions
from tailrace.schema.gaps import settle, skip
from tailrace.schema.truncations import metadata_epoch, truncations_in
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table

_LOG: Final = logging.getLogger("tailrace.capture")


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
        previous_rows, (rows, change) = live.rows, live.rows.apply(mutation)
        objects, changes = live.objects.apply(mutation)
    except (UnknownTableError, DecodeError) as error:
        return skip(live, entry, error)
    live.applied = entry.position
    live.rows, live.objects = rows, objects
    live.history = live.history.up_to(live.metadata_epoch)
    keyspace = mutation.updates[0].key.decode()
    if keyspace not in SYSTEM:
        live.tell(ddl_events(previous_rows, mutation, change, changes, entry.position, live.metadata_epoch))
        for problem in change.problems:  # those of Cassandra's own tables are built in
            _LOG.warning("the DDL at %s cannot be used; changes of that table are parked: %s", entry.position, problem)
    dropped = _drop(live, change, entry.position)
    added, altered = list[Table](), list[Table]()
    for table in change.defined:
        unsure = (table.keyspace, table.name) in live.unsure
        difference = live.define(table, entry.position, inferred=unsure, metadata=live.metadata_epoch)
        added += difference.added
        altered += difference.altered
    settle(live, entry.position)
    return bool(told(SchemaDifference(tuple(added), tuple(altered), dropped), entry.position))


def _drop(live: LiveDefinitions, change: SchemaChange, position: Position) -> tuple[Table, ...]:
    for table in change.dropped:
        live.truncations.forget(table.id)
    defined_ids = {table.id for table in change.defined}
    return live.drop((table for table in change.dropped if table.id not in defined_ids), position).dropped


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
