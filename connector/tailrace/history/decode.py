"""Serialized mutations and the schema that holds for each, to the messages of their changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final
from uuid import UUID

from mypy_extensions import i64

from tailrace.changes.pieces import Dated, Put, Tables, put_pieces
from tailrace.changes.transcode import UNTRACKED, Message, Transcoder
from tailrace.commitlog.frames import Entry
from tailrace.commitlog.mutation import (
    MutationVisitor,
    UpdateVisitor,
    first_metadata_epoch,
    first_table_bytes,
    read_mutation,
)
from tailrace.commitlog.plans import TablePlan
from tailrace.commitlog.reader import Reader
from tailrace.errors import UnknownTableError
from tailrace.history.schema import SchemaHistory, Timeline
from tailrace_schemas.change import Source
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table

_NO_LIMIT: Final = 1 << 62
LARGE: Final = 256 << 10
"""Mutations from this size on, in bytes, are put in pieces: as changes they take up to a hundred times as much."""


def messages_at(
    history: SchemaHistory, transcoder: Transcoder, payload: bytes, version: int, source: Source
) -> list[Message]:
    """The messages of tables with cdc = true at the position that `source` names.

    What cannot hold a change is not decoded. Where updates carry an epoch of the cluster's metadata and the history
    knows epochs (Cassandra 6), that says which definition, whatever the position. Raises UnknownTableError,
    NewerSchemaError, UnknownColumnError and DecodeError, as decode_mutation does.
    """
    lookup = _lookup(history, payload, version, source.position)
    if lookup is None:
        return []
    tables, dated = lookup
    return transcoder.messages(payload, version, tables, source, dated)


def put_messages_at(
    put: Put, history: SchemaHistory, transcoder: Transcoder, payload: bytes, version: int, source: Source
) -> int:
    """As `messages_at`, but the messages are handed to `put`, a few at a time; their number."""
    lookup = _lookup(history, payload, version, source.position)
    if lookup is None:
        return 0
    tables, dated = lookup
    return put_pieces(put, transcoder, payload, version, tables, source, dated)


class _Tracked(MutationVisitor):
    """Notes whether an update is of a table with cdc = true."""

    def __init__(self) -> None:
        self.cdc = False

    def update(self, table_plan: TablePlan) -> UpdateVisitor:
        if table_plan.table.cdc:
            self.cdc = True
        return UNTRACKED


def holds_change(history: SchemaHistory, reader: Reader, entry: Entry) -> bool:
    """Whether `messages_at` finds a change in a mutation; also where it raises, as that is for others to answer."""
    try:
        lookup = _lookup(history, entry.payload, entry.version, entry.position)
        if lookup is None:
            return False
        tracked = _Tracked()
        read_mutation(reader, entry.payload, entry.version, lookup[0], tracked, lookup[1])
        return tracked.cdc
    except (UnknownTableError, DecodeError):
        return True


def _lookup(
    history: SchemaHistory, payload: bytes, version: int, position: Position
) -> tuple[Tables, Dated | None] | None:
    """How the definitions of a mutation's tables are found; None where it holds no change."""
    updates, first = first_table_bytes(payload, version)
    metadata_epoch = None if history.metadata is None else first_metadata_epoch(payload, version)
    if metadata_epoch is None:
        table = history.table(table_id(first), position)
    else:
        table = history.written_by(table_id(first), position, metadata_epoch)
    if table is None:
        raise UnknownTableError(table_id(first))
    # A mutation is of one keyspace.
    if table.keyspace not in history.cdc_keyspaces or (updates == 1 and not table.cdc):
        return None

    def at_position(id: bytes) -> Table | None:
        return history.table(table_id(id), position)

    def written_by(id: bytes, metadata_epoch: int) -> Table | None:
        return history.written_by(table_id(id), position, metadata_epoch)

    return at_position, None if metadata_epoch is None else written_by


def source_at(node: Source, position: Position, read_at: int) -> Source:
    """The source of a mutation of this node that ends at a position and was read at that time, in milliseconds."""
    return replace(node, position=position, seen=read_at)


@lru_cache(maxsize=4096)
def table_id(id: bytes) -> UUID:
    """The table id of its 16 bytes; making a new one takes longer than decoding a mutation."""
    return UUID(bytes=id)


def _size_from(messages: list[Message], start: i64) -> i64:
    """The bytes of the keys and values from `start` on."""
    size: i64 = 0
    index = start
    while index < len(messages):
        size += len(messages[index].value) + len(messages[index].key)
        index += 1
    return size


class Definitions:
    """One history as many mutations in a row need it: definitions by the 16 bytes of table ids."""

    def __init__(self, history: SchemaHistory) -> None:
        self.history = history
        self._keyspaces = history.cdc_keyspaces
        # There the epochs in the updates say which definition (Cassandra 6).
        self._dated = history.metadata is not None
        self._unsure: list[bytes] = [id.bytes for id in history.unsure]
        self._single: dict[bytes, Table] = {id.bytes: table for id, table in history.single.items()}
        self._timelines: dict[bytes, Timeline] = {
            id.bytes: timeline for id, timeline in history.timelines.items() if id not in history.single
        }
        self._proven: dict[int, Table] = {}
        self._last: Table | None = None
        self._entry: Entry | None = None
        self._find = self._table

    def prove(self, messages: Iterable[Message]) -> None:
        """Changes of the tables of these messages can be published."""
        for message in messages:
            self._proven[id(message.table)] = message.table

    def messages(
        self, transcoder: Transcoder, entries: Iterable[Entry], source: Source, limit: i64, most_bytes: i64 = _NO_LIMIT
    ) -> tuple[int, list[Message]]:
        """How many of the entries, from the first on, can be decoded without a closer look, and their messages.

        It ends with the entry that brings the messages to `limit`, and before the one that brings them above
        `most_bytes`, unless that is the first. It also ends before an entry that `messages_at` has to decide: a large
        one, one that raises, or one whose definition may be inferred. So it does before a change of a table that is not
        proven yet, and before every entry where the history knows metadata epochs.

        `source` names the node, and when and how it was read.
        """
        messages: list[Message] = []
        if self._dated:
            return 0, messages
        transcoder.begin(source)
        done: i64 = 0
        size: i64 = 0
        for entry in entries:
            if len(messages) >= limit or len(entry.payload) >= LARGE or (self._unsure and self._is_unsure(entry)):
                break
            self._entry = entry
            first_message = len(messages)
            try:
                if self._may_change(entry):
                    transcoder.add(
                        messages, entry.payload, entry.version, self._find, entry.epoch, entry.segment, entry.offset
                    )
            except (UnknownTableError, DecodeError):
                break
            if not self._are_proven(messages, first_message):
                del messages[first_message:]
                break
            size += _size_from(messages, first_message)
            if size > most_bytes and done:
                del messages[first_message:]
                break
            done += 1
        return done, messages

    def _are_proven(self, messages: list[Message], start: i64) -> bool:
        """Whether all messages from `start` on are of tables that are."""
        index = start
        while index < len(messages):
            table = messages[index].table
            # Most often the table of the one before.
            if table is not self._last:
                if id(table) not in self._proven:
                    return False
                self._last = table
            index += 1
        return True

    def _may_change(self, entry: Entry) -> bool:
        """Whether it may hold a change, as far as its first table says; a mutation is of one keyspace."""
        updates, first = first_table_bytes(entry.payload, entry.version)
        table = self._table(first)
        if table is None:
            raise UnknownTableError(UUID(bytes=first))
        return (table.cdc or updates != 1) and table.keyspace in self._keyspaces

    def _table(self, id: bytes) -> Table | None:
        """The definition that holds for the entry at hand."""
        table = self._single.get(id)
        if table is not None:
            return table
        timeline = self._timelines.get(id)
        entry = self._entry
        return None if timeline is None or entry is None else timeline.at(entry.position)

    def _is_unsure(self, entry: Entry) -> bool:
        payload = entry.payload
        return any(id in payload for id in self._unsure)
