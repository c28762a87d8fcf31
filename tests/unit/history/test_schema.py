"""What stays known, what is replaced, what is only learnt."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.changes.transcode import Message, Transcoder
from tailrace.errors import UnknownTableError
from tailrace.history.decode import messages_at
from tailrace.history.schema import SchemaHistory
from tailrace.position import Position
from tailrace_schemas.avro import Encoder, decode, entry_from_record, schema_records
from tailrace_schemas.change import Change, Source
from tailrace_schemas.errors import TruncatedError
from tailrace_schemas.system_tables import system_table_id, system_tables
from tests.unit.mutations import EPOCH, deletion, mutation
from tests.unit.tables import table

A = table({"id": "text"}, name="a", table_id=UUID(int=1))
B = replace(table({"id": "text"}, name="b", table_id=UUID(int=2)), cdc=False)
C = replace(table({"id": "text"}, name="c", keyspace="other", table_id=UUID(int=3)), cdc=False)


def decoded(message: Message) -> Change:
    """The change that a message carries."""
    records = schema_records(Encoder(message.table, "p"), "t")
    return decode(message.value, {key: entry_from_record(key, value) for key, value in records})


HERE = Position(1, 1, 1)
SOURCE = Source("h", "dc", 1, 7, 20, 0, 0)


def test_a_read_replaces_and_tells_what_changed() -> None:
    """Added, altered, dropped, by name; an equal definition is no change."""
    history, first = SchemaHistory().merge([B, A])
    assert str(first) == "added: ks.a, ks.b"
    wider = table({"id": "text"}, regular={"v": "int"}, name="a", table_id=A.id)
    history, second = history.merge([wider, C])
    assert (second.added, second.altered, second.dropped) == ((C,), (wider,), (B,))
    assert history.table(A.id, HERE) is wider
    assert not history.merge([wider, C])[1]
    assert str(history.merge([wider, C])[1]) == "nothing"


def test_what_was_known_stays_known_after_drop() -> None:
    """Also its keyspace, for its mutations are still to be decoded; it is dropped once, not at each read."""
    history = SchemaHistory().merge([A])[0].merge([])[0]
    assert history.table(A.id, HERE) == A
    assert history.cdc_keyspaces == {"ks"}
    assert history.tracked() == ()
    assert not history.merge([])[1]


def test_learning_adds_ids_and_touches_nothing_else() -> None:
    """A flag that an event tells of is not believed before the log is there."""
    history = SchemaHistory().merge([A])[0]
    learnt, difference = history.learn([replace(A, cdc=False), B])
    assert (difference.added, difference.altered, difference.dropped) == ((B,), (), ())
    assert learnt.table(A.id, HERE) == A
    assert learnt.table(B.id, HERE) == B


def test_tracked_are_the_present_tables_with_cdc() -> None:
    """By name."""
    other = replace(A, name="0", id=UUID(int=9))
    assert SchemaHistory().merge([A, B, other])[0].tracked() == (other, A)


HISTORY = SchemaHistory().merge([*system_tables(), A, B, C])[0]
DDL = system_table_id("system_schema", "columns")


@pytest.mark.parametrize(
    ("payload", "keys"),
    [
        (deletion(A, b"k"), [b"k"]),
        (deletion(B, b"k"), []),
        (deletion(C, b"k"), []),
        (mutation((B, b"k", EPOCH), (A, b"k", EPOCH)), [b"k"]),
        (mutation((A, b"k", EPOCH), (B, b"k", EPOCH), (A, b"k", EPOCH + 1)), [b"k", b"k"]),
        (deletion(DDL, b"ks"), None),
        (deletion(system_table_id("system", "local"), b"local"), []),
        # What cannot hold a change is not decoded, so it cannot be damaged either.
        (deletion(C, b"k")[:-1], []),
    ],
)
def test_changes_of_tables_with_cdc(payload: bytes, keys: list[bytes] | None) -> None:
    """None for DDL."""
    messages = messages_at(HISTORY, Transcoder("p"), payload, 7, SOURCE)
    changes = None if messages is None else [decoded(message) for message in messages]
    assert (None if changes is None else [change.key for change in changes]) == keys
    for index, change in enumerate(changes or ()):
        assert change.source == replace(SOURCE, index=index, count=len(changes or ()))


def test_an_unknown_table_is_named() -> None:
    """First in its mutation, or behind a known one of a keyspace with cdc."""
    unknown = UUID(int=99)
    for payload in (deletion(unknown, b"k"), mutation((B, b"k", EPOCH), (unknown, b"k", EPOCH))):
        with pytest.raises(UnknownTableError, match=str(unknown)):
            messages_at(HISTORY, Transcoder("p"), payload, 7, SOURCE)


def test_a_cut_anywhere_is_a_decode_error() -> None:
    """Of a mutation of a table with cdc."""
    payload = deletion(A, b"key")
    for end in range(len(payload)):
        with pytest.raises(TruncatedError):
            messages_at(HISTORY, Transcoder("p"), payload[:end], 7, SOURCE)
