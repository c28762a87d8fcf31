"""What a sink knows of one source table as a whole: the record of its table catalog, of no store, and its JSON form.

    {"record": 1, "definition": {...}, "announced": n, "truncations": "hex", "purged_to": n, "own": {...}}

`definition` is as `table_to_json` writes it, `truncations` as `encode_truncations` does. The last three are left out
where nothing is known. `own` has what one store keeps beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from tailrace_schemas.errors import CorruptError
from tailrace_schemas.formats import require_format
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_from_json, table_to_json
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.merge.definitions import merge_definitions
from tailrace_spark.merge.truncation import TruncatedBatch, truncate_batch
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
