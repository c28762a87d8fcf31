"""The records of `.schema-changes`: there and back, what they say in words, and which of them are copies."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.history.events import (
    EventError,
    EventKind,
    SchemaEvent,
    Subject,
    changed_words,
    decode_event,
    encode_event,
    event_key,
    table_id_of,
)
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_to_json
from tests.unit.tables import table

ORDERS = table({"id": "int"}, {"at": "timestamp"}, {"s": "text"}, {"v": "text", "home": "addr"})
ALTERED = SchemaEvent(
    position=Position(1, 7, 20),
    kind=EventKind.ALTERED,
    subject=Subject.TABLE,
    keyspace="ks",
    name="t",
    table=ORDERS,
    changed=("column v text added",),
    written=1_700_000_000_000_000,
)
EVENTS = (
    ALTERED,
    replace(ALTERED, kind=EventKind.TRUNCATED, changed=(), upto=(7, 5), inferred=True, index=3),
    replace(ALTERED, kind=EventKind.DROPPED, metadata=9),
    SchemaEvent(
        position=Position(2, 1, 1),
        kind=EventKind.CREATED,
        subject=Subject.KEYSPACE,
        keyspace="ks",
        details={"durable_writes": True, "replication": {"class": "SimpleStrategy"}},
    ),
    SchemaEvent(
        position=Position(2, 1, 1),
        kind=EventKind.CREATED,
        subject=Subject.TYPE,
        keyspace="ks",
        name="u",
        details={"a": "int"},
    ),
)


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_there_and_back(event: SchemaEvent) -> None:
    """With the host, and the digest that others find too."""
    value = encode_event("h", event)
    assert decode_event(value) == ("h", event)
    assert json.loads(value)["digest"] == event.digest.hex()


def test_reads_as_the_contract_says() -> None:
    """UTF-8 JSON, docs/contracts.md section 1."""
    record = json.loads(encode_event("h", EVENTS[1]))
    digest = record.pop("digest")
    assert len(digest) == 32
    assert record == {
        "host": "h",
        "position": {"epoch": 1, "segment": 7, "offset": 20},
        "index": 3,
        "kind": "truncated",
        "subject": "table",
        "keyspace": "ks",
        "name": "t",
        "id": str(ORDERS.id),
        "definition": json.loads(json.dumps(table_to_json(ORDERS))),
        "changed": [],
        "written": 1_700_000_000_000_000,
        "metadata": None,
        "upto": {"segment": 7, "offset": 5},
        "inferred": True,
        "format": 1,
    }
    assert event_key("h", EVENTS[1]) == b"h/1/7/20/3"


def test_copies_have_one_digest() -> None:
    """Position, what the host knew before, and whether it read or concluded differ between hosts; all else counts."""
    copies = (
        replace(ALTERED, position=Position(3, 1, 9), index=2),
        replace(ALTERED, kind=EventKind.CREATED, changed=()),
        replace(ALTERED, inferred=True),
    )
    assert {one.digest for one in copies} == {ALTERED.digest}
    others = (
        replace(ALTERED, table=replace(ORDERS, cdc=False)),
        replace(ALTERED, written=ALTERED.written + 1),
        replace(ALTERED, metadata=9),
        replace(ALTERED, metadata=10),
        *EVENTS[1:],
    )
    assert len({one.digest for one in (ALTERED, *others)}) == len(others) + 1
    assert replace(ALTERED, metadata=9, written=1).digest == replace(ALTERED, metadata=9).digest


def shape(regular: str = "v text, home addr", at: str = "at", key: str = "id", cdc: bool = True) -> Table:
    """A definition like that of ORDERS."""
    columns = dict(one.split() for one in regular.split(", "))
    return replace(table({key: "int"}, {at: "timestamp"}, {"s": "text"}, columns), cdc=cdc)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (shape(), []),
        (shape("v text, home addr, w int"), ["column w int added"]),
        (shape("home addr"), ["column v dropped"]),
        (shape("v blob, home addr"), ["column v: text is blob now"]),
        (shape(at="moment"), ["key column at renamed to moment"]),
        (shape(key="number"), ["key column id renamed to number"]),
        (shape(cdc=False), ["cdc off"]),
        (shape("home addr, x int", cdc=False), ["column x int added", "column v dropped", "cdc off"]),
        (replace(shape(), dropped=()), []),
    ],
)
def test_words(after: Table, words: list[str]) -> None:
    """Columns that come, go, have another name or type; the flag."""
    assert list(changed_words(ORDERS, after)) == words
    assert changed_words(None, after) == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "not one of ours"),
        (b"{}", "not one of ours"),
        (b"[]", "not one of ours"),
        (b'{"format": 2}', "format 2"),
        (encode_event("h", ALTERED).replace(b'"altered"', b'"improved"'), "not one of ours"),
    ],
)
def test_what_is_no_event_is_refused(value: bytes, message: str) -> None:
    """Not guessed at."""
    with pytest.raises(EventError, match=message):
        decode_event(value)


def test_ids_of_what_has_none_differ() -> None:
    """By what it is, and by name."""
    found = {
        table_id_of(Subject.KEYSPACE, "a"),
        table_id_of(Subject.TYPE, "a", "b"),
        table_id_of(Subject.TYPE, "a", "c"),
        UUID(int=0),
    }
    assert len(found) == 4
