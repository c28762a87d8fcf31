"""Our topics' records as anybody may write them: a reader gives what is right, or the one error that it promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cli.cluster.parked import letters_of
from tailrace.history.events import EventError, EventKind, SchemaEvent, Subject, decode_event, encode_event
from tailrace.history.records import (
    HistoryRecord,
    OtherHistoryError,
    encode_history,
    history_key,
    history_of,
    read_history,
)
from tailrace.publish.hosts import hosts_of
from tailrace.publish.offsets import (
    OffsetsError,
    agent_of,
    encode_offsets,
    encode_parked,
    offsets_key,
    parked_key,
    read_offsets,
    records_of,
)
from tailrace.publish.reports import dead_letter, encode_letter
from tailrace.state import Parked, Quarantined, Resume, Truncation
from tailrace_common.kafka import Record
from tailrace_schemas.avro import Encoder, decode, entry_from_record, schema_records
from tailrace_schemas.change import Cell, Change, Marker, Op, Source
from tailrace_schemas.errors import CorruptError, DecodeError, SettingsError, UnsupportedError
from tailrace_schemas.generation_records import GenerationLog
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress, decode_progress, encode_progress, progress_key
from tests.properties import examples
from tests.support.schema import rows_of
from tests.unit.tables import table

HOST: Final = str(UUID(int=1))
TABLE: Final = table(
    {"k": "int"}, {"c": "timestamp desc"}, {"s": "text"}, {"v": "map<int, addr>", "w": "list<frozen<addr>>"},
    dropped={"x": ("int", 5)},
)  # fmt: skip
PLACE: Final = Position(1, 2, 3)
LOT: Final = Parked(1, 2, 7, TABLE.id, 3, (3, 4), 5, "why")
ENCODER: Final = Encoder(TABLE, "p")
SCHEMAS: Final = dict(schema_records(ENCODER, "p.ks.t"))
CHANGE: Final = Change(
    op=Op.INSERT, table=TABLE, token=1, key=b"\0\0\0\1", clustering=(bytes(8),), marker=Marker(7, None, None),
    cells=(Cell(TABLE.columns[2], b"\0" * 16, 7, None, None, b""),), digest=bytes(16),
    source=Source(HOST, "dc", Position(1, 1, 1), 0, 1),
)  # fmt: skip
MESSAGE: Final = ENCODER.value(CHANGE)
RESUME: Final = Resume(
    PLACE, ((2, 7),), (Quarantined(2, 7, 9, "why"),), unread=((1, 2),), reported=((1, 2),), schema=PLACE,
    truncations=(Truncation(PLACE, TABLE.id, 5, (2, 3), inferred=True),), truncated=((TABLE.id, 5, True),),
    metadata=(3, None),
)  # fmt: skip
EVENT: Final = SchemaEvent(
    position=PLACE, kind=EventKind.CREATED, subject=Subject.TABLE, keyspace="ks", name="t", table=TABLE, upto=(1, 2)
)

Reading = Callable[[bytes], object]


def _schema(value: bytes) -> None:
    """Only CorruptError leaves the entry, and only a DecodeError what decodes a message by it."""
    with suppress(CorruptError):
        entry = entry_from_record(ENCODER.schema_id, value)
        with suppress(DecodeError):
            decode(MESSAGE, {ENCODER.schema_id: entry})


def _history(value: bytes) -> None:
    record = HistoryRecord(PLACE, TABLE.id, ("ks", "t"), rows_of(TABLE))
    before = HistoryRecord(Position(0, 0, 0), TABLE.id, ("ks", "t"), rows_of(TABLE))
    kept = [(history_key(HOST, before), encode_history(before)), (history_key(HOST, record), value)]
    with suppress(OtherHistoryError):
        history_of(read_history(HOST, kept))


def _event(value: bytes) -> None:
    with suppress(EventError):
        str(decode_event(value)[1])


def _offsets(value: bytes) -> None:
    records_of(value), agent_of(value)
    with suppress(OffsetsError):
        read_offsets("c", HOST, [(offsets_key("c", HOST), value)])
    hosts_of([Record(0, 0, offsets_key("c", HOST), value)])


def _parked(value: bytes) -> None:
    with suppress(OffsetsError):
        read_offsets("c", HOST, [(parked_key("c", HOST, LOT.key), value)])


def _progress(value: bytes) -> None:
    with suppress(CorruptError):
        decode_progress(progress_key("c", HOST), value)


def _letter(value: bytes) -> None:
    with suppress(SettingsError):
        list(letters_of([Record(0, 0, b"key", value)], None))


def _generation(value: bytes) -> None:
    for key in (HOST.encode(), f"{HOST}/0".encode(), b"expired"):
        with suppress(UnsupportedError):
            GenerationLog().feed(0, 0, key, value)


READERS: Final[dict[str, tuple[Reading, bytes]]] = {
    "schemas": (_schema, SCHEMAS[ENCODER.schema_id]),
    "schema-history": (_history, encode_history(HistoryRecord(PLACE, TABLE.id, ("ks", "t"), rows_of(TABLE)))),
    "schema-changes": (_event, encode_event(HOST, EVENT)),
    "offsets": (_offsets, encode_offsets(RESUME, "agent", 3)),
    "parked": (_parked, encode_parked(LOT)),
    "progress": (_progress, encode_progress(Progress("c", HOST, Position(1, 2, 3), Position(1, 2, 3), 5))),
    "dead-letter": (_letter, encode_letter(HOST, dead_letter(LOT, ()), "ks.t", 5)),
    "generations": (
        _generation,
        json.dumps({"version": 2, "uuid": HOST, "timestamp": 5, "n": 1, "i": 0, "sha256": ""}).encode(),
    ),
}
NONSENSE: Final = (
    b"",
    b"{}",
    b"[]",
    b"5",
    b"null",
    b'"text"',
    b"\xff\xfe\xfd",
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b'{"format":' + b"9" * 10_000 + b"}",
    b'{"version":1e999,"format":1e999}',
    b'{"version":NaN,"format":NaN}',
    b"\x1f\x8b\x08 no gzip",
    b"\0" * 100,
)


@pytest.mark.parametrize("topic", READERS)
def test_what_is_there_is_read(topic: str) -> None:
    """The whole records that the others are made of are right ones."""
    reading, value = READERS[topic]
    reading(value)
    assert decode_event(encode_event(HOST, EVENT))[1] == EVENT
    entries = {key: entry_from_record(key, value) for key, value in SCHEMAS.items()}
    assert decode(MESSAGE, entries) == CHANGE


@pytest.mark.promise("agent.foreign-records")
@pytest.mark.parametrize("topic", READERS)
@pytest.mark.parametrize("value", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense(topic: str, value: bytes) -> None:
    READERS[topic][0](value)


SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**400),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["null", "int", "record", "udt", "type", "int<", "frozen<x>", "partition_key", str(TABLE.id)]),
)
VALUES: Final = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
)


def _replaced(value: Any, path: list[int], other: Any) -> Any:
    """A JSON value with another in place of the node to which a path leads; it is as long as it leads."""
    if not path or not isinstance(value, dict | list) or not value:
        return other
    step, *rest = path
    if isinstance(value, list):
        place = step % len(value)
        return [_replaced(one, rest, other) if number == place else one for number, one in enumerate(value)]
    name = sorted(value)[step % len(value)]
    return {key: _replaced(one, rest, other) if key == name else one for key, one in value.items()}


@pytest.mark.promise("agent.foreign-records")
@pytest.mark.slow
@pytest.mark.parametrize("topic", READERS)
@given(path=st.lists(st.integers(0, 40), min_size=1, max_size=9), other=VALUES)
@settings(max_examples=examples(20), deadline=None)
def test_records_with_another_value_somewhere(topic: str, path: list[int], other: Any) -> None:
    """Whatever stands there in place of what should."""
    reading, value = READERS[topic]
    changed = json.dumps(_replaced(json.loads(value), path, other))
    reading(changed.encode(errors="replace"))


@pytest.mark.slow
@pytest.mark.promise("agent.foreign-records")
@given(place=st.integers(0, 400), byte=st.integers(0, 255), topic=st.sampled_from(sorted(READERS)))
@settings(max_examples=examples(120), deadline=None)
def test_records_with_another_byte_somewhere(topic: str, place: int, byte: int) -> None:
    reading, value = READERS[topic]
    damaged = bytearray(value)
    damaged[place % len(damaged)] = byte
    reading(bytes(damaged))
