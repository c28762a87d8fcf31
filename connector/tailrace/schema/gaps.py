"""Holes in the log: what DDL stood there, by the write times of the cluster's present rows."""

from __future__ import annotations

import logging
from typing import Final

from tailrace.commitlog.frames import Entry
from tailrace.commitlog.mutation import oldest_write
from tailrace.history.cells import NEVER
from tailrace.schema.ddl_log import Gap
from tailrace.schema.definitions import LiveDefinitions, just_before
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.capture")
_A_SECOND: Final = 1_000_000


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
    in the log. It may have been altered in the gap too, so its changes up to that DDL are marked.
    """
    changed, view = False, live.view
    live.history = live.history.up_to(view.state.metadata)
    for truncation in live.truncations.missed(view.state.truncated, gap.until, gap.written):
        live.truncated(truncation)
    for name, (table, written) in view.present().items():
        newest = live.history.newest(table.id)
        if written <= live.rows.written(name):
            # Its own rows are known; but those of its user types?
            written = view.types_written(table) if newest is not None and newest != table else NEVER
        if written == NEVER:
            continue
        words = f"altered unseen between {gap.after} and {gap.until}"
        if gap.written is None or written < gap.written:
            changed |= live.infer(table, gap.until, words)
        elif newest is not None and newest == live.rows.definitions.get(name):
            live.define(newest, gap.until, inferred=True)
            live.note(newest, f"may have been {words}: changes up to its next DDL are marked schema_inferred")
    return changed


def settle(live: LiveDefinitions, position: Position) -> None:
    """Tables of which the log has come to the cluster's newest DDL are sure again, from a position on."""
    for name, (table, written) in (live.view.present() if live.unsure else {}).items():
        logged = live.rows.written(name)
        if name not in live.unsure or logged < written:
            continue
        if logged == written:
            live.infer(table, position, "altered before, unseen")
        elif (definition := live.rows.definitions.get(name)) is not None:
            live.define(definition, position, inferred=False)
