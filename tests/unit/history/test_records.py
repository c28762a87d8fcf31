"""The records of the schema history: there and back, whoever read the rows, and whatever else is in the topic."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from tailrace.history.records import (
    HistoryError,
    HistoryRecord,
    encode_history,
    history_key,
    history_of,
    history_values,
    read_history,
)
from tailrace.history.rows import KeyedRow
from tailrace_schemas.definitions import read_schema_file
from tailrace_schemas.position import Position
from tests.support.schema import rows_of
from tests.unit.tables import table

HOST = "5f0f6a53-2a1c-4a58-9df4-e41f1b2f9b66"
ORDERS = table(
    {"id": "int"}, {"at": "timestamp desc"}, {"s": "text"}, {"v": "text", "home": "addr"}, dropped={"w": ("int", 5000)}
)
RECORDS = (
    HistoryRecord(Position(0, 0, 0), ORDERS.id, ("ks", "t"), rows_of(ORDERS, 7)),
    HistoryRecord(Position(1, 1795283630864, 60896), ORDERS.id, ("ks", "t"), rows_of(ORDERS, 8), inferred=True),
    HistoryRecord(Position(1, 1795283630865, 5), ORDERS.id, ("ks", "t")),
)
ENCODED = [(history_key(HOST, record), encode_history(record)) for record in RECORDS]


def test_there_and_back() -> None:
    """By key and value; definitions are equal, order is by position, other hosts' records are not ours."""
    found = [(history_key(HOST, record), encode_history(record)) for record in reversed(RECORDS)]
    foreign = (history_key(HOST[:-1] + "7", RECORDS[0]), encode_history(RECORDS[0]))
    back = read_history(HOST, [*found, foreign])
    assert [(one.position, one.table_id, one.name, one.inferred) for one in back] == [
        (one.position, one.table_id, one.name, one.inferred) for one in RECORDS
    ]
    assert [one.table for one in back] == [ORDERS, ORDERS, None]
    assert [row.written for row in back[1].rows] == [8] * len(RECORDS[1].rows)
    assert [encode_history(one) for one in back] == [encode_history(one) for one in RECORDS]


def test_the_key_is_the_contract_s() -> None:
    """<host id>/<table id>/<epoch>/<segment>/<offset>."""
    assert history_key(HOST, RECORDS[1]) == f"{HOST}/{ORDERS.id}/1/1795283630864/60896".encode()


def test_the_last_value_of_a_key_counts() -> None:
    """As the topic is compacted; a tombstone takes it away."""
    key = history_key(HOST, RECORDS[2])
    other = encode_history(HistoryRecord(Position(9, 9, 9), ORDERS.id, ("ks", "t"), rows_of(ORDERS)))
    (one,) = read_history(HOST, [(key, encode_history(RECORDS[2])), (key, other)])
    assert (one.position, one.table) == (RECORDS[2].position, ORDERS)
    assert read_history(HOST, [(key, other), (key, None)]) == ()


def test_rows_are_those_that_a_schema_file_has() -> None:
    """So that `dump --schema` reads them, too."""
    rows = json.loads(encode_history(RECORDS[0]))["rows"]
    assert read_schema_file(map(json.dumps, rows)).definitions.tables == (ORDERS,)


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b"[1]",
        b"\xff",
        b"[" * 100_000,
        b'{"format":' + b"9" * 5000 + b"}",
        b'{"format": "x"}',
        b'{"format": {}}',
        b'{"format": 2, "parts": 3}',
        b'{"format": 2, "parts": 1e400}',
        b"\x1f\x8b damaged",
        encode_history(RECORDS[2]).replace(b'"rows":[]', b'"rows":[{}]'),
        encode_history(RECORDS[0]).replace(b'"partition_key"', b'"regular"'),
        encode_history(RECORDS[0]).replace(b'"kind":"static"', b'"kind":5'),
    ],
)
def test_a_damaged_record_is_alone(value: bytes) -> None:
    """It is known to be there and to say nothing; the others are read."""
    key = history_key(HOST, RECORDS[1])
    first, damaged, last = read_history(HOST, [*ENCODED, (key, value)])
    assert (first.table, last.table) == (ORDERS, None)
    assert (damaged.position, damaged.table_id, damaged.table) == (RECORDS[1].position, ORDERS.id, None)
    assert damaged.unreadable
    assert read_history(HOST, [(f"{HOST}/x".encode(), value), (f"{HOST}/a/b/c/d".encode(), value)]) == ()


def test_behind_a_damaged_record_the_definition_is_unsure() -> None:
    """The one before holds on, and what is read by it is marked."""
    history = history_of(read_history(HOST, [*ENCODED[:1], (ENCODED[1][0], b"?")]))
    before, behind = Position(1, 1, 1), RECORDS[1].position
    assert [history.table(ORDERS.id, place) for place in (before, behind)] == [ORDERS, ORDERS]
    assert [history.inferred(ORDERS.id, place) for place in (before, behind)] == [False, True]


@pytest.mark.promise("agent.large-definition")
@pytest.mark.slow
@pytest.mark.parametrize("most", [10, 1000, 900_000])
def test_a_large_record_is_cut_and_put_together(most: int) -> None:
    """Whatever the topic takes; nothing is lost, and without one of its parts it is damaged."""
    wide = table({"k": "int"}, regular={f"{number}": "int" for number in range(3850)})
    record = HistoryRecord(Position(1, 2, 3), wide.id, ("ks", "t"), rows_of(wide))
    values = history_values(HOST, record, most)
    assert all(len(value) <= max(most, 30) for _, value in values)
    assert (len(values) > 1) == (most < 900_000)
    assert [one.table for one in read_history(HOST, reversed(values))] == [wide]
    for missing in range(1, len(values), 50):
        (damaged,) = read_history(HOST, values[:missing] + values[missing + 1 :])
        assert damaged.unreadable


def test_rows_that_define_nothing() -> None:
    """Are named."""
    row = KeyedRow("tables", {"keyspace_name": "ks", "table_name": "t", "id": UUID(int=1)})
    with pytest.raises(HistoryError, match=r"ks\.t defines nothing"):
        _ = HistoryRecord(Position(1, 1, 1), UUID(int=1), ("ks", "t"), (row,)).table
