"""What is not committed of the schema history: in pieces, and not without end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.history.records import BEGINNING, HistoryRecord, encode_history
from tailrace.schema.definitions import UnsentRecords
from tailrace.schema.live import LiveSchema
from tailrace.state import Resume
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tests.support.kafka import Faults
from tests.support.schema import MemorySchema, MemorySchemaLog, rows_of
from tests.unit.ddl import NOW, create
from tests.unit.schema.node import Node
from tests.unit.tables import table


def numbered(number: int) -> Table:
    """One of many tables without cdc."""
    return replace(table({"id": "int"}, name=f"t{number}", table_id=UUID(int=number)), cdc=False)


def record(number: int, position: Position = BEGINNING) -> HistoryRecord:
    return HistoryRecord(position, UUID(int=number), ("ks", f"t{number}"), rows_of(numbered(number)))


THREE = 3 * record(0).weight


def test_what_a_new_host_read_goes_in_pieces() -> None:
    """Whole records; one that is larger than a piece goes alone."""
    records = UnsentRecords(THREE)
    for number in range(8):
        records.add(record(number))
    sizes = []
    while records:
        sizes.append((len(records.piece), records.is_whole, records.full()))
        records.sent()
    assert sizes == [(3, False, True), (3, False, True), (2, True, False)]
    large = UnsentRecords(1)
    large.add(record(1))
    large.add(record(2))
    assert (len(large.piece), large.is_whole) == (1, False)
    large.sent()
    assert (len(large.piece), large.is_whole) == (1, True)


def test_what_the_log_said_is_not_cut() -> None:
    """Its events go with it; but no more of it is read."""
    records = UnsentRecords(THREE)
    for number in range(8):
        records.add(record(number, Position(1, 1, number)))
    assert records.full()
    assert len(records.piece) == 8
    records.remove({(Position(1, 1, number), UUID(int=number)) for number in range(6)})
    assert (len(records.piece), records.full()) == (2, False)


def schema_of(node: Node, known: Sequence[HistoryRecord] = (), resume: Resume | None = None) -> LiveSchema:
    """A fresh agent's, with pieces of three tables."""
    schema = LiveSchema(MemorySchema(node.tables), MemorySchemaLog(node.log, Faults()), UnsentRecords(THREE))
    schema.learn()
    schema.begin(known, resume or Resume(), 1)
    return schema


def commit(schema: LiveSchema) -> tuple[tuple[HistoryRecord, ...], Resume]:
    """What a commit gives to Kafka."""
    committed = tuple(schema.unsent), schema.noted(Resume())
    schema.sent()
    return committed


@pytest.mark.promise("agent.large-schema")
def test_a_new_host_with_many_tables() -> None:
    """Until all are committed its offsets record says so, and a start after a crash in between reads all again."""
    node = Node([numbered(number) for number in range(8)])
    schema = schema_of(node)
    assert schema.behind
    first, resume = commit(schema)
    assert (len(first), resume.schema) == (3, BEGINNING)
    node.tables.append(numbered(8))
    again = schema_of(node, first, resume)
    committed = list(first)
    while again.behind:
        committed += commit(again)[0]
    rest, resume = commit(again)
    assert sorted(one.name for one in (*committed, *rest)) == sorted(("ks", f"t{number}") for number in range(9))
    assert resume.schema is None


@pytest.mark.promise("agent.large-schema")
def test_ddl_that_is_too_much_at_once_waits_in_the_log() -> None:
    """Each commit says how far it was read, and what is told of it goes with it."""
    node = Node([])
    node.log.append(5, [create(numbered(number), NOW + number) for number in range(8)])
    schema = schema_of(node)
    schema.follow(None)
    told = []
    while schema.behind:
        assert not schema.follow(None)
        told.append((len(schema.unsent), len(schema.events), schema.noted(Resume()).schema))
        commit(schema)
        schema.follow(None)
    told.append((len(schema.unsent), len(schema.events), schema.noted(Resume()).schema))
    assert [(records, events) for records, events, _ in told] == [(3, 3), (3, 3), (2, 2)]
    assert [place and (place.segment, place.offset) for *_, place in told] == [(5, 3), (5, 6), (6, 0)]


@pytest.mark.promise("agent.large-schema")
@pytest.mark.long
def test_five_thousand_tables_without_cdc() -> None:
    """A new host keeps them in pieces of a few MiB, and a restart reads them all again."""
    columns = table({"id": "int"}, regular=dict.fromkeys("abcdef", "text")).regular
    node = Node([replace(numbered(number), regular=columns) for number in range(5000)])
    schema = node.schema()
    pieces = []
    while schema.news:
        pieces.append(commit(schema)[0])
    assert len(pieces) > 1
    assert max(sum(len(encode_history(one)) for one in piece) for piece in pieces) < 8 << 20
    again = schema_of(Node(), [one for piece in pieces for one in piece], Resume(schema=Position(1, 1, 0)))
    assert {UUID(int=number) for number in range(5000)} <= again.history.current
    assert not again.behind


@pytest.mark.promise("agent.foreign-records")
def test_a_record_that_cannot_be_read() -> None:
    """The cluster's present definition is taken from there on, and marked; it is told; others are as they were."""
    wide = replace(numbered(1), regular=table({"id": "int"}, regular={"v": "int"}).regular, cdc=True)
    node = Node([wide, numbered(2)])
    known = [
        record(1),
        record(2),
        HistoryRecord(Position(1, 5, 1), UUID(int=1), ("", ""), unreadable="damaged"),
        HistoryRecord(Position(1, 5, 2), UUID(int=77), ("", ""), unreadable="damaged"),
    ]
    schema = schema_of(node, known, Resume(schema=Position(1, 5, 9)))
    before, behind = Position(1, 5, 0), Position(1, 5, 1)
    assert [schema.history.table(UUID(int=1), place) for place in (before, behind)] == [numbered(1), wide]
    assert [schema.history.inferred(UUID(int=1), place) for place in (before, behind)] == [False, True]
    assert schema.history.tracked() == (wide,)
    assert not schema.history.inferred(UUID(int=2), behind)
    assert {name: "cannot be read (damaged)" in words for name, words in schema.inferred.items()} == {
        "ks.t1": True,
        f"table id {UUID(int=77)}": True,
    }
