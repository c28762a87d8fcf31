"""Large mutations in pieces: the messages of the transcoder, in its order, byte for byte, and few of them at a time."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.changes.pieces import put_pieces
from tailrace.changes.transcode import Message, Transcoder
from tailrace.errors import UnknownTableError
from tailrace_schemas.errors import DecodeError
from tests.unit.changes.transcoding import SOURCE, Definitions, Sent, payloads
from tests.unit.commitlog.recorded import KINDS, recorded


def whole(transcoder: Transcoder, payload: bytes, version: int, tables: Definitions) -> Sent:
    return told(transcoder.messages(payload, version, lambda id: tables(UUID(bytes=id)), SOURCE))


def in_pieces(
    transcoder: Transcoder, payload: bytes, version: int, tables: Definitions, window: int
) -> tuple[Sent, int]:
    """Messages, and the number that was given."""
    messages: list[Message] = []
    number = put_pieces(
        messages.extend, transcoder, payload, version, lambda id: tables(UUID(bytes=id)), SOURCE, None, window
    )
    return told(messages), number


def told(messages: list[Message]) -> Sent:
    return [(str(message.table), message.token, message.key, message.value) for message in messages]


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 3, 16_384])
@pytest.mark.parametrize("kind", KINDS)
def test_recorded_mutations(kind: str, window: int) -> None:
    """With windows of few changes an update whose order is not that of its bytes is read again and again."""
    tables = {id: replace(table, cdc=True) for id, table in recorded(kind).tables().items()}
    transcoder, count = Transcoder("app.cdc"), 0
    for payload, version in payloads(kind):
        expected = whole(transcoder, payload, version, tables.get)
        assert in_pieces(transcoder, payload, version, tables.get, window) == (expected, len(expected))
        count += len(expected)
    assert count


def outcome(
    transcoder: Transcoder, payload: bytes, version: int, tables: Definitions, window: int | None
) -> Sent | type[Exception]:
    try:
        if window is None:
            return whole(transcoder, payload, version, tables)
        return in_pieces(transcoder, payload, version, tables, window)[0]
    except (DecodeError, UnknownTableError) as error:
        return type(error)


def test_damaged_payloads_end_alike() -> None:
    tables, transcoder = recorded("5.0.1/uncompressed").tables(), Transcoder("app.cdc")
    for place, (payload, version) in enumerate(payloads("5.0.1/uncompressed")):
        damaged = bytearray(payload)
        at = (place * 7919) % (len(payload) - 17) + 17
        damaged[at] ^= 1 << place % 8
        for data in (bytes(damaged), payload[:at]):
            expected = outcome(transcoder, data, version, tables.get, None)
            assert outcome(transcoder, data, version, tables.get, 2) == expected
