"""What the log shows of data that Cassandra streamed and logged once more: a head that is older than all in it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.changes.pieces import put_pieces
from tailrace.changes.transcode import Message, Transcoder
from tailrace.commitlog.model import Mutation, PartitionUpdate
from tailrace.commitlog.mutation import decode_mutation
from tailrace_schemas.avro import Encoder, SchemaEntry, decode
from tailrace_schemas.change import SCHEMA_INFERRED, STREAMED, UPDATE_BEGINS, Source
from tests.oracle.split import changes_of
from tests.unit.changes.rows import KEY, SOURCE, TABLE, cell, row
from tests.unit.changes.transcoding import payloads
from tests.unit.commitlog.recorded import KINDS, recorded
from tests.unit.commitlog.written import Stats, encode

VERSION = 8
LEAST = 1_700_000_000_000_000
OTHER = replace(TABLE, name="o", id=UUID(int=5))
UPDATE = PartitionUpdate(
    table=TABLE,
    key=KEY,
    items=(row("a", cell("v", LEAST + 1), marker=LEAST), row("b", cell("v", LEAST + 2), deleted=LEAST + 2)),
)


def payload_of(mutation: Mutation, least: int) -> bytes:
    """Its bytes, with heads that say this time."""
    header = ((), tuple(column for column in TABLE.regular if column.name == "v"))
    headers = [header] * len(mutation.updates)
    return encode(mutation, Stats(timestamp=least), headers)


def flags_of(payload: bytes, source: Source = SOURCE) -> list[int]:
    """The flags of each change; by all three ways, which agree."""
    tables = {TABLE.id: TABLE, OTHER.id: OTHER}
    by_objects = [
        change.source.flags
        for change in changes_of(decode_mutation(payload, VERSION, tables.get), source, lambda _: True)
        if change.source is not None
    ]
    encoders = [Encoder(one, "t") for one in (TABLE, OTHER)]
    schemas = {
        encoder.schema_id: SchemaEntry(
            schema_id=encoder.schema_id, topic="t", table=encoder.table, avro=encoder.schema_text
        )
        for encoder in encoders
    }

    def told(messages: list[Message]) -> list[int]:
        sources = [decode(message.value, schemas).source for message in messages]
        return [source.flags for source in sources if source is not None]

    transcoder = Transcoder("t")
    assert told(transcoder.messages(payload, VERSION, lambda id: tables.get(UUID(bytes=id)), source)) == by_objects
    pieces: list[Message] = []
    put_pieces(pieces.extend, transcoder, payload, VERSION, lambda id: tables.get(UUID(bytes=id)), source, None, 1)
    assert told(pieces) == by_objects
    return by_objects


@pytest.mark.promise("log-tables.streamed-data")
def test_what_a_client_writes_has_the_least_time_of_its_head() -> None:
    assert flags_of(payload_of(Mutation(updates=(UPDATE,)), LEAST)) == [0, 0, 0]


def test_a_deletion_that_some_releases_leave_out_is_no_sign() -> None:
    """That of a collection that is overwritten: a microsecond before its elements."""
    assert flags_of(payload_of(Mutation(updates=(UPDATE,)), LEAST - 1)) == [0, 0, 0]


@pytest.mark.promise("log-tables.streamed-data")
def test_what_is_older_in_its_head_than_in_all_else_was_streamed() -> None:
    payload = payload_of(Mutation(updates=(UPDATE,)), LEAST - 5)
    assert flags_of(payload) == [STREAMED] * 3
    assert flags_of(payload, replace(SOURCE, flags=SCHEMA_INFERRED)) == [STREAMED | SCHEMA_INFERRED] * 3


def test_each_update_has_a_head_of_its_own() -> None:
    """And what is said of one says nothing of the next."""
    other = replace(UPDATE, table=OTHER, items=(row("a", cell("v", LEAST - 5)),))
    flags = flags_of(payload_of(Mutation(updates=(UPDATE, other)), LEAST - 5))
    assert [flag & STREAMED for flag in flags] == [STREAMED] * 3 + [0]
    assert flags[3] & UPDATE_BEGINS


@pytest.mark.slow
@pytest.mark.promise("log-tables.streamed-data")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_a_node_by_itself_was_streamed(kind: str) -> None:
    """Writes of every sort, as releases have logged them."""
    tables = {id: replace(table, cdc=True) for id, table in recorded(kind).tables().items()}
    marked = [
        update
        for payload, version in payloads(kind)
        for update in decode_mutation(payload, version, tables.get).updates
        if update.streamed
    ]
    assert marked == []
