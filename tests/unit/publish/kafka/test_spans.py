"""Which records are a host's, and whether a transaction without marks was committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.publish.kafka.spans import Owner, Trace, committed
from tailrace.publish.offsets import encode_offsets, offsets_key, records_of
from tailrace.state import Parked, Resume, Truncation
from tailrace_schemas.avro import Encoder, SchemaEntry, entry_from_record, schema_records
from tailrace_schemas.change import Change, Deletion, Op, Origin
from tailrace_schemas.position import Position
from tests.unit.spark.cassandra import Log, source
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text"})
LOG, ENCODER = Log(PLAIN), Encoder(PLAIN, "p")
HOST = source().host
TOPIC = "p.ks.t"
BY = Resume(position=Position(1, 5, 400), schema=Position(1, 6, 900))


def owner(host: str = HOST) -> Owner:
    """Of cluster c."""
    known: Mapping[bytes, SchemaEntry] = {
        key: entry_from_record(key, value) for key, value in schema_records(ENCODER, TOPIC)
    }
    return Owner("p", "c", host, known)


def change(segment: int, offset: int, origin: Origin = Origin.LOG, op: Op = Op.INSERT) -> bytes:
    """A message of a change at a place of the host's log."""
    made = LOG.insert((1,), (), 7, v="a")
    at = replace(source(), position=Position(1, segment, offset), origin=origin)
    if op is Op.TRUNCATE:
        return ENCODER.value(
            Change(op=op, table=PLAIN, token=0, key=None, deletion=Deletion(7, 0), digest=b"d" * 16, source=at)
        )
    return ENCODER.value(replace(made, source=at))


def told(by: Resume, value: bytes | None, topic: str = TOPIC, key: bytes | None = b"k") -> bool | None:
    """What an offsets record says of a record of the host's."""
    trace = owner().trace((topic, key, value))
    assert trace is not None
    return trace.told(by)


@pytest.mark.parametrize(
    ("topic", "key", "ours"),
    [
        ("p.offsets", f"c/{HOST}", True),
        ("p.offsets", f"c/{HOST}/parked/1/5/x/9", True),
        ("p.offsets", f"c/{HOST}0", False),
        ("p.offsets", "c/22222222-0000-0000-0000-000000000000", False),
        ("p.progress", f"c/{HOST}", True),
        ("p.schema-history", f"{HOST}/t/1/5/9", True),
        ("p.schema-changes", "22222222-0000-0000-0000-000000000000/1/5/9/0", False),
        ("p.dead-letter", f"{HOST}/1/5/t/9", True),
        ("p.schemas", "whatever", False),
    ],
)
def test_records_of_internal_topics_are_told_by_their_keys(topic: str, key: str, ours: bool) -> None:
    assert (owner().trace((topic, key.encode(), b"{}")) is not None) == ours


def test_changes_are_told_by_their_source() -> None:
    mine = (TOPIC, None, change(5, 100))
    assert owner().trace(mine) is not None
    assert owner("22222222-0000-0000-0000-000000000000").trace(mine) is None
    assert owner().trace((TOPIC, None, b"7")) is None
    assert owner().trace((TOPIC, b"mark", None)) is None


@pytest.mark.parametrize(("segment", "offset", "is_told"), [(5, 400, True), (4, 900, True), (5, 401, False)])
def test_a_change_is_told_by_the_position(segment: int, offset: int, is_told: bool) -> None:
    assert told(BY, change(segment, offset)) is is_told
    assert told(Resume(), change(segment, offset)) is False


def test_a_parked_change_is_told_when_it_is_parked_no_more() -> None:
    lot = Parked(1, 5, 9, UUID(int=1), 100, (100, 120), 0, "")
    late = change(5, 100, Origin.PARKED)
    assert told(BY, late) is True
    assert told(replace(BY, parked=(lot,)), late) is False
    assert told(replace(BY, parked=(replace(lot, segment=4),)), late) is True


def test_a_truncation_is_told_when_it_is_pending_no_more() -> None:
    pending = Truncation(Position(1, 6, 500), PLAIN.id, 7)
    record = change(6, 500, op=Op.TRUNCATE)
    assert told(BY, record) is True
    assert told(replace(BY, truncations=(pending,)), record) is False
    assert told(replace(BY, schema=Position(1, 6, 499)), record) is False


def test_history_and_events_are_told_by_how_far_ddl_was_read() -> None:
    for topic, key in (("p.schema-history", f"{HOST}/t/1/6/"), ("p.schema-changes", f"{HOST}/1/6/")):
        end = "/0" if "changes" in topic else ""
        assert told(BY, b"{}", topic, f"{key}900{end}".encode()) is True
        assert told(BY, b"{}", topic, f"{key}901{end}".encode()) is False
        assert told(BY, b"{}", topic, f"{HOST}/nothing".encode()) is None
    assert told(BY, b"{}", "p.progress", offsets_key("c", HOST)) is None


TOLD, NEW, MUTE = Trace(lambda _: True), Trace(lambda _: False), Trace(lambda _: None)


@pytest.mark.promise("agent.lost-marks")
@pytest.mark.parametrize(
    ("unmarked", "records", "visible", "expected"),
    [
        # Its offsets record has a mark, and says.
        ((TOLD, MUTE), None, (), True),
        ((NEW, MUTE), None, (), False),
        ((TOLD, NEW), None, (), False),
        ((MUTE,), None, (NEW,), False),
        # It has none: whole, it counts; in part, only where readers have the rest.
        ((NEW, NEW, MUTE), 3, (), True),
        ((), 0, (), True),
        ((NEW, NEW), 3, (TOLD, MUTE), False),
        ((NEW, NEW), 3, (TOLD, NEW), True),
        # Of an agent that did not say how many there are.
        ((NEW,), -1, (), False),
        ((NEW,), -1, (NEW,), True),
    ],
)
def test_the_verdict(
    unmarked: tuple[Trace, ...], records: int | None, visible: tuple[Trace, ...], expected: bool
) -> None:
    assert committed(unmarked, BY, records, lambda: visible) is expected


def test_an_offsets_record_says_how_many_there_are() -> None:
    assert records_of(encode_offsets(BY, "4f2a", 7)) == 7
    assert records_of(encode_offsets(BY, "4f2a")) is None
    assert records_of(b"x") is None
