"""The schema of a running agent: where it comes from, what is kept of it, and what is said of its changes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from uuid import UUID

import pytest

from tailrace.commitlog.frames import Entry
from tailrace.errors import NewerSchemaError
from tailrace.history.events import Subject
from tailrace.history.records import BEGINNING, HistoryRecord, encode_history, history_key, read_history
from tailrace.schema.ddl_log import Gap
from tailrace.schema.live import LiveSchema
from tailrace.state import Resume, Truncation
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table
from tests.support.capture import MemoryLog
from tests.support.kafka import Faults
from tests.support.schema import MemorySchema, MemorySchemaLog, rows_of
from tests.unit.ddl import (
    NOW,
    alter,
    create,
    drop,
    drop_keyspace,
    keyspace,
    metadata_log,
    schema_version,
    together,
    truncate,
)
from tests.unit.schema.node import ORDERS, Node, begun
from tests.unit.tables import table

WIDE = table({"id": "text"}, {}, {}, {"v": "int", "w": "addr"}, keyspace="shop", name="orders")
OFF = replace(WIDE, cdc=False)
WIDER = "table shop.orders altered: column w addr added"
OTHER = replace(table({"n": "int"}, keyspace="shop", name="other", table_id=UUID(int=2)))


def at(segment: int, offset: int = 1) -> Position:
    return Position(1, segment, offset)


def test_a_new_host_s_first_read_holds_from_the_beginning() -> None:
    """And is to be kept, but for Cassandra's own tables; then the log goes on from it."""
    node, schema = begun([*system_tables(), ORDERS])
    assert [(one.position, one.table, one.inferred) for one in schema.unsent] == [(BEGINNING, ORDERS, False)]
    node.log.append(5, [alter(ORDERS, WIDE)])
    assert schema.follow(None)
    assert (schema.history.table(ORDERS.id, at(5, 0)), schema.history.table(ORDERS.id, at(5, 2))) == (ORDERS, WIDE)
    assert [one.table for one in schema.unsent if one.subject is Subject.TABLE] == [ORDERS, WIDE]
    schema.sent()
    assert not schema.follow(None)
    assert schema.unsent == []


def test_a_restart_knows_what_was_committed_and_no_more() -> None:
    """DDL that is committed is not read again; what was not is, and is to be sent; positions answer as before."""
    node, schema = begun()
    node.follow(schema, 5, [alter(ORDERS, WIDE), alter(WIDE, OFF, NOW + 1)])
    seed, of_type, wide, off = schema.unsent
    node.tables[:] = [OFF]
    for known in ((seed,), (seed, of_type, wide), (seed, of_type, wide, off)):
        again = node.schema(*known)
        again.follow(None)
        found = [(one.position, one.subject) for one in (*known, *again.unsent)]
        assert found == [
            (BEGINNING, Subject.TABLE),
            (at(5, 1), Subject.TYPE),
            (at(5, 1), Subject.TABLE),
            (at(5, 2), Subject.TABLE),
        ]
        for position, expected in ((at(4), ORDERS), (at(5, 1), WIDE), (at(5, 2), OFF), (at(6), OFF)):
            assert again.history.table(ORDERS.id, position) == expected


def test_a_table_dropped_and_made_anew_is_kept_as_two() -> None:
    """Under their ids; after a restart too, nothing of the old one is in the new one."""
    node, schema = begun()
    again = table({"n": "int"}, keyspace="shop", name="orders", table_id=UUID(int=9))
    node.follow(schema, 5, [drop(ORDERS), create(again, NOW + 1)])
    known = tuple(schema.unsent)
    assert [(one.table_id, one.table) for one in known[1:]] == [(ORDERS.id, None), (again.id, again)]
    node.tables[:] = [again]
    restarted = node.schema(*known)
    wider = table({"n": "int"}, {}, {}, {"x": "int"}, keyspace="shop", name="orders", table_id=again.id)
    node.follow(restarted, 6, [alter(again, wider, NOW + 2)])
    assert restarted.history.table(ORDERS.id, at(9)) == ORDERS
    assert restarted.history.table(again.id, at(9)) == wider
    assert restarted.history.tracked() == (wider,)


def test_a_session_that_begins_anew_keeps_what_was_read() -> None:
    """Its segment may be gone: only what Kafka lacks is sent again."""
    node, schema = begun()
    node.follow(schema, 5, [alter(ORDERS, WIDE)])
    node.log.segments.clear()
    seed, of_type, wide = schema.unsent
    assert [str(event) for event in schema.events] == ["type shop.addr created", WIDER]
    schema.begin((seed,), Resume(), 1)
    assert schema.unsent == [of_type, wide]
    assert [str(event) for event in schema.events] == ["type shop.addr created", WIDER]
    schema.begin((seed, of_type, wide), Resume(schema=at(5)), 1)
    assert schema.unsent == []
    assert not schema.news
    assert schema.history.table(ORDERS.id, at(6)) == WIDE


def test_the_cluster_is_ahead_of_the_log() -> None:
    """A table that is read in its later form: the log says from where on it had which."""
    node = Node([])
    schema = node.schema(written=NOW + 2)
    node.tables.append(OFF)
    schema.hint()
    assert schema.learn().added == (OFF,)
    assert not schema.hinted
    node.follow(schema, 5, [create(ORDERS), alter(ORDERS, WIDE, NOW + 1), alter(WIDE, OFF, NOW + 2)])
    found = [schema.history.table(ORDERS.id, at(5, offset)) for offset in (1, 2, 3)]
    assert found == [ORDERS, WIDE, OFF]
    assert [one.table for one in schema.unsent if one.subject is Subject.TABLE] == [ORDERS, WIDE, OFF]


def test_an_alteration_of_a_table_that_was_only_read() -> None:
    """Created before the log's oldest segment, after our history began: what was read is the base."""
    node = Node([])
    known = HistoryRecord(BEGINNING, OTHER.id, ("shop", "other"), rows_of(OTHER))
    node.tables += [OTHER, ORDERS]
    schema = node.schema(known)
    node.follow(schema, 5, [alter(ORDERS, WIDE)])
    assert [schema.history.table(ORDERS.id, at(5, offset)) for offset in (0, 1)] == [ORDERS, WIDE]


def test_ddl_that_cannot_be_decoded_is_a_hole(caplog: pytest.LogCaptureFixture) -> None:
    """Named by its position; what the cluster says of it is taken, now or when it answers; what follows is applied."""
    faults = Faults("schema", 2, ServiceError("down"))
    node = Node()
    schema = LiveSchema(MemorySchema(node.tables, faults, NOW), MemorySchemaLog(node.log, Faults()))
    schema.learn()
    name = ("shop", "orders")
    schema.begin([HistoryRecord(BEGINNING, ORDERS.id, name, rows_of(ORDERS, NOW - 100))], Resume(), 1)
    node.tables[:] = [WIDE]
    node.log.append(5, [alter(ORDERS, WIDE)[:-1], alter(WIDE, OFF, NOW + 1)])
    with pytest.raises(ServiceError):
        schema.follow(None)
    assert schema.follow(None)
    places = (at(5, 0), at(5, 1), at(5, 2))
    assert [schema.history.table(ORDERS.id, one) for one in places] == [ORDERS, WIDE, OFF]
    assert "DDL at 1/5:1 in CommitLog-7-5.log cannot be read" in caplog.text
    assert "1/5:1" in schema.inferred["system_schema"]
    assert [(str(one).partition(":")[0], one.inferred) for one in schema.events if one.name == "orders"] == [
        ("table shop.orders altered", True),
        ("table shop.orders altered", False),
    ]


def test_keyspaces_and_types_are_told_once() -> None:
    """Created, altered, dropped; the options that stand in all DDL tell nothing; known after a restart too."""
    bare = replace(ORDERS, name="bare", id=UUID(int=7))
    node, schema = begun([])
    node.follow(schema, 5, [keyspace("shop"), keyspace("shop", NOW + 1), create(WIDE, NOW + 2), create(bare, NOW + 3)])
    assert [str(event) for event in schema.events] == [
        "keyspace shop created",
        "type shop.addr created",
        "table shop.orders created",
        "table shop.bare created",
    ]
    assert [event.index for event in schema.events] == [0, 0, 1, 0]
    node.tables[:] = [WIDE, bare]
    again = node.schema(*schema.unsent)
    node.log.append(
        6, [keyspace("shop", NOW + 4), keyspace("shop", NOW + 5, durable=False), drop_keyspace("shop", NOW + 6)]
    )
    again.follow(None)
    assert [str(event) for event in again.events] == [
        "keyspace shop altered: option durable_writes: true is false now",
        "table shop.bare dropped",
        "table shop.orders dropped",
        "type shop.addr dropped",
        "keyspace shop dropped",
    ]
    # Without a history record to go on from, what was told before is not told again.
    empty = LiveSchema(MemorySchema([]), MemorySchemaLog(node.log, Faults()))
    empty.learn()
    empty.begin((), Resume(schema=at(6, 2)), 1)
    empty.follow(None)
    assert {event.position for event in empty.events} == {at(6, 3)}


@pytest.mark.promise("agent.schema-events")
@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_stale_node_sends_of_a_dropped_table_is_no_news(restarted: bool) -> None:
    """A successor knows the time of the DROP from its record."""
    node, schema = begun([])
    node.follow(schema, 5, [create(ORDERS, NOW), create(OTHER, NOW + 1), drop(ORDERS, NOW + 5)])
    node.tables[:] = [OTHER]
    if restarted:
        values = [(history_key("h", record), encode_history(record)) for record in schema.unsent]
        schema = node.schema(*read_history("h", values), written=NOW + 1)
        schema.follow(None)
    node.follow(schema, 6, [create(ORDERS, NOW), create(ORDERS, NOW + 7)])
    assert [(str(event), event.position) for event in schema.events if event.position.segment == 6] == [
        ("table shop.orders created", at(6, 2))
    ]


@pytest.mark.promise("agent.schema-events")
@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_stale_node_sends_of_a_keyspace_is_no_news(restarted: bool) -> None:
    """Nor is what it has of one that was dropped since; the next statement is."""
    node, schema = begun([])
    node.follow(schema, 5, [keyspace("shop", NOW, durable=False), keyspace("shop", NOW + 5), keyspace("old", NOW)])
    if restarted:
        schema = node.schema(*schema.unsent)
        schema.follow(None)
    stale = [keyspace("shop", NOW, durable=False), drop_keyspace("old", NOW + 6), keyspace("old", NOW)]
    node.follow(schema, 6, [*stale, keyspace("shop", NOW + 7, durable=False)])
    assert [str(event) for event in schema.events if event.position.segment == 6] == [
        "keyspace old dropped",
        "keyspace shop altered: option durable_writes: true is false now",
    ]


@pytest.mark.promise("agent.schema-events")
def test_what_a_node_that_was_away_tells_has_the_digests_of_all_others() -> None:
    """It gets the rows of all statements in one mutation: each thing has the time of its own."""
    other = replace(OTHER, keyspace="shop", name="later")
    statements = [keyspace("shop", NOW), create(WIDE, NOW + 1), create(other, NOW + 9)]
    (node, schema), (away, behind) = begun([]), begun([])
    node.follow(schema, 5, statements)
    away.follow(behind, 7, [together(*statements)])
    told, copies = ({str(event): event.digest for event in one.events} for one in (schema, behind))
    assert len(told) == 4
    assert copies == told


@pytest.mark.promise("agent.definition-of-its-place", "agent.schema-events")
@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_stale_node_sends_of_a_type_changes_nothing(restarted: bool) -> None:
    """A node that was away for an ALTER TYPE is asked for its schema: Cassandra takes the later write, and so do we."""
    first, second = WIDE.regular
    shorter = replace(second.type, fields=second.type.fields[:2], args=second.type.args[:2])
    before = replace(WIDE, regular=(first, replace(second, type=shorter)))
    node, schema = begun([])
    node.follow(schema, 5, [create(before, NOW), alter(before, WIDE, NOW + 5)])
    node.tables[:] = [WIDE]
    if restarted:
        schema = node.schema(*schema.unsent, written=NOW + 5)
        schema.follow(None)
    node.follow(schema, 6, [create(before, NOW)])
    assert schema.history.table(WIDE.id, at(6, 1)) == WIDE
    assert [str(event) for event in schema.events if event.position.segment == 6] == []


def test_truncations_of_the_log_and_of_holes() -> None:
    """Of tables of users only, published where the flag says so; a hole's is the cluster's newest that fits."""
    milliseconds = NOW // 1000
    node = Node([ORDERS, replace(OTHER, cdc=False)])
    reader = MemorySchema(node.tables, written=NOW - 100, truncated={ORDERS.id: b""})
    source = MemorySchemaLog(node.log, Faults())
    schema = LiveSchema(reader, source)
    schema.learn()
    schema.begin((), Resume(), 1)
    system = next(table.id for table in system_tables())
    off = replace(ORDERS, cdc=False)
    node.log.append(
        5,
        [
            truncate(ORDERS.id, milliseconds),
            truncate(OTHER.id, milliseconds + 1),
            truncate(system, milliseconds + 2),
            truncate(UUID(int=99), milliseconds + 3),
            alter(ORDERS, off),
            truncate(ORDERS.id, milliseconds + 4),
            alter(off, ORDERS, NOW + 1),
        ],
    )
    schema.follow(None)
    assert [str(event) for event in schema.events] == [
        "table shop.orders truncated",
        "table shop.other truncated",
        "table shop.orders altered: cdc off",
        "table shop.orders truncated",
        "table shop.orders altered: cdc on",
    ]
    assert [one.position for one in schema.truncations.pending] == [at(5, 1)]
    reader.truncated[ORDERS.id] = truncated_at(milliseconds + 50)
    source.gaps.append(Gap(at(6, 0), at(7, 0), NOW + 100_000))
    node.follow(schema, 7, [b"\1" + bytes(40)])
    assert [one.position for one in schema.truncations.pending] == [at(5, 1), at(7, 0)]
    record = schema.noted(Resume())
    assert record.truncations == tuple(schema.truncations.pending)
    assert schema.events[-1].inferred
    schema.begin(schema.unsent, record, 1)
    assert not schema.news


def truncated_at(milliseconds: int) -> bytes:
    """What `system.local` has of a truncation."""
    return bytes(12) + milliseconds.to_bytes(8, "big")


@pytest.mark.promise("agent.metadata-epoch")
def test_the_epochs_of_the_metadata() -> None:
    """A write by a later definition than any met is not decoded; one by an earlier is, wherever it stands."""
    node = Node([], MemoryLog(version=7))
    reader = MemorySchema([ORDERS], epoch=4)
    schema = LiveSchema(reader, MemorySchemaLog(node.log, Faults()))
    schema.learn()
    schema.begin((), Resume(), 1)
    assert schema.history.written_by(ORDERS.id, at(1), 4) == ORDERS
    node.follow(schema, 5, [metadata_log(5)], final=False)
    with pytest.raises(NewerSchemaError, match="epoch 5, and the log's DDL was read up to 4"):
        schema.history.written_by(ORDERS.id, at(5, 2), 5)
    record = schema.noted(Resume())
    assert record.metadata == (4, 5)
    again = LiveSchema(reader, MemorySchemaLog(node.log, Faults()))
    again.learn()
    again.begin(schema.unsent, record, 1)
    wider = alter(ORDERS, WIDE)
    node.log.append(5, [wider, schema_version(5), metadata_log(6), alter(WIDE, OFF, NOW + 1)], final=False)
    for one in (schema, again):
        one.follow(None)
        # Written before its DDL was logged; and by those who had not heard of it.
        assert one.history.written_by(ORDERS.id, at(5, 1), 5) == WIDE
        assert one.history.written_by(ORDERS.id, at(9), 5) == WIDE
        assert one.history.written_by(ORDERS.id, at(9), 4) == ORDERS
        assert one.history.written_by(ORDERS.id, at(5, 1), 6) == OFF
        assert one.history.written_by(UUID(int=99), at(5, 1), 6) is None
        with pytest.raises(NewerSchemaError):
            one.history.written_by(ORDERS.id, at(9), 7)
        assert [event.metadata for event in one.events] == [5, 5, 6]
    third = LiveSchema(reader, MemorySchemaLog(node.log, Faults()))
    third.learn()
    third.begin(again.unsent, again.noted(Resume()), 1)
    assert [third.history.written_by(ORDERS.id, at(9), epoch) for epoch in (5, 6)] == [WIDE, OFF]


def test_where_the_log_tells_of_no_epochs_the_cluster_does() -> None:
    """A write that is ahead of what was read takes what is read then."""
    node = Node()
    reader = MemorySchema([ORDERS], epoch=4)
    schema = LiveSchema(reader, MemorySchemaLog(node.log, Faults()))
    schema.learn()
    schema.begin((), Resume(), 1)
    reader.tables[:], reader.epoch = [WIDE], 5
    schema.learn()
    entry = Entry(1, 5, 3, ORDERS.id.bytes, 9, "CommitLog-9-5.log")
    trial = schema.as_read(entry)
    assert trial.written_by(ORDERS.id, entry.position, 5) == WIDE


def test_only_tables_of_users_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """A release's own tables differ from the built-in ones, or are not there: nobody changed them."""
    caplog.set_level(logging.INFO, "tailrace.capture")
    altered, _, *others = system_tables()
    node, schema = begun(
        [replace(altered, cdc=not altered.cdc), replace(altered, name="new", id=UUID(int=5)), *others, ORDERS]
    )
    assert caplog.messages == ["schema: added: shop.orders"]
    node.follow(schema, 5, [alter(ORDERS, WIDE), drop(WIDE, NOW + 1)])
    assert caplog.messages[1:] == ["schema at 1/5:1: altered: shop.orders", "schema at 1/5:2: dropped: shop.orders"]


def gap(schema: LiveSchema, source: MemorySchemaLog, after: Position, segment: int, began: int) -> None:
    """The log could not be read behind `after`, and goes on with a segment that began at some time."""
    source.gaps.append(Gap(after, Position(1, segment, 0), began))
    schema.follow(None)


@dataclass
class Restarted:
    """An agent that comes back: what Kafka has, what the cluster has now, and a log with holes."""

    known: Table
    now: Table
    altered: int
    """When, as the cluster's rows say."""

    def begin(self) -> tuple[LiveSchema, MemorySchemaLog, MemoryLog]:
        """Its schema, before the first hole."""
        log = MemoryLog()
        source = MemorySchemaLog(log, Faults())
        schema = LiveSchema(MemorySchema([self.now], written=self.altered), source)
        schema.learn()
        name = (self.known.keyspace, self.known.name)
        schema.begin([HistoryRecord(BEGINNING, self.known.id, name, rows_of(self.known, NOW))], Resume(schema=at(5)), 1)
        return schema, source, log


def test_a_hole_in_the_log_without_ddl_changes_nothing() -> None:
    """The cluster's rows are as old as the log's: they are asked for once, and nothing is marked."""
    schema, source, _ = Restarted(ORDERS, ORDERS, NOW).begin()
    gap(schema, source, at(6, 0), 8, NOW + 100)
    assert (schema.unsent, schema.inferred, schema.history.unsure) == ([], {}, frozenset())


def test_ddl_in_a_hole_holds_from_behind_it() -> None:
    """Its write time is before what follows: exact, so nothing is marked; but it is told, and kept."""
    schema, source, _ = Restarted(ORDERS, WIDE, NOW + 50).begin()
    gap(schema, source, at(6, 0), 8, NOW + 100)
    assert [schema.history.table(ORDERS.id, one) for one in (at(7), at(8))] == [ORDERS, WIDE]
    _, record = schema.unsent  # the type's, and the table's
    assert (record.position, record.table, record.inferred) == (at(8, 0), WIDE, False)
    assert "altered unseen between 1/6:0 and 1/8:0" in schema.inferred["shop.orders"]
    assert not schema.history.unsure


@pytest.mark.promise("agent.unread-ddl")
def test_of_several_holes_the_write_time_chooses() -> None:
    """What stands in between is marked: nobody knows what else was altered, and altered back."""
    schema, source, _ = Restarted(ORDERS, WIDE, NOW + 150).begin()
    gap(schema, source, at(6, 0), 8, NOW + 100)
    gap(schema, source, at(9, 0), 10, NOW + 200)
    places = (at(7), at(8), at(9), at(10))
    assert [schema.history.table(ORDERS.id, one) for one in places] == [ORDERS, ORDERS, ORDERS, WIDE]
    assert [schema.history.inferred(ORDERS.id, one) for one in places] == [False, True, True, False]
    again = LiveSchema(MemorySchema([WIDE], written=NOW + 150), MemorySchemaLog(MemoryLog(), Faults()))
    again.learn()
    again.begin(
        [HistoryRecord(BEGINNING, ORDERS.id, ("shop", "orders"), rows_of(ORDERS, NOW)), *schema.unsent], Resume(), 1
    )
    assert [again.history.table(ORDERS.id, one) for one in places] == [ORDERS, ORDERS, ORDERS, WIDE]
    assert [again.history.inferred(ORDERS.id, one) for one in places] == [False, True, True, False]


def test_ddl_behind_a_hole_is_the_log_s_own() -> None:
    """The cluster's rows are newer than what follows the hole: marked up to the DDL, exact from there on."""
    schema, source, log = Restarted(ORDERS, WIDE, NOW + 150).begin()
    gap(schema, source, at(6, 0), 8, NOW + 100)
    log.append(8, [b"\x01" + bytes(16), alter(ORDERS, WIDE, NOW + 150)])
    schema.follow(None)
    places = (at(7), at(8, 1), at(8, 2), at(9))
    assert [schema.history.table(ORDERS.id, one) for one in places] == [ORDERS, ORDERS, WIDE, WIDE]
    assert [schema.history.inferred(ORDERS.id, one) for one in places] == [False, True, False, False]


def test_ddl_in_a_hole_and_behind_it() -> None:
    """A column was added unseen, the flag in the log: the cluster's definition holds from the DDL on."""
    schema, source, log = Restarted(ORDERS, OFF, NOW + 150).begin()
    gap(schema, source, at(6, 0), 8, NOW + 100)
    log.append(8, [alter(WIDE, OFF, NOW + 150)])
    schema.follow(None)
    assert [schema.history.table(ORDERS.id, one) for one in (at(8, 0), at(8, 1))] == [ORDERS, OFF]
    assert [schema.history.inferred(ORDERS.id, one) for one in (at(8, 0), at(8, 1))] == [True, False]


def test_a_table_made_anew_in_a_hole() -> None:
    """The old id is dropped, the new one was learnt; DDL goes on from its rows."""
    again = table({"n": "int"}, keyspace="shop", name="orders", table_id=UUID(int=9))
    schema, source, log = Restarted(ORDERS, again, NOW + 50).begin()
    gap(schema, source, at(6, 0), 8, NOW + 100)
    assert schema.history.tracked() == (again,)
    assert [(one.table_id, one.table) for one in schema.unsent] == [(ORDERS.id, None), (again.id, again)]
    wider = table({"n": "int"}, {}, {}, {"x": "int"}, keyspace="shop", name="orders", table_id=again.id)
    log.append(8, [alter(again, wider, NOW + 150)])
    schema.follow(None)
    assert schema.history.table(again.id, at(9)) == wider


def test_a_hole_waits_for_a_cluster_that_cannot_be_asked() -> None:
    """Nothing behind it is taken into account, nor noted as read, until it can be."""
    log = MemoryLog()
    faults, source = Faults("schema", 2, ServiceError("down")), MemorySchemaLog(log, Faults())
    schema = LiveSchema(MemorySchema([WIDE], faults, NOW + 50), source)
    schema.learn()
    schema.begin(
        [HistoryRecord(BEGINNING, ORDERS.id, ("shop", "orders"), rows_of(ORDERS, NOW))], Resume(schema=at(5)), 1
    )
    log.append(8, [alter(WIDE, OFF, NOW + 200)])
    with pytest.raises(ServiceError):
        gap(schema, source, at(6, 0), 8, NOW + 100)
    assert (schema.read_up_to, schema.unsent) == (at(5), [])
    assert schema.follow(None)
    assert [one.table for one in schema.unsent if one.subject is Subject.TABLE] == [WIDE, OFF]
    assert schema.read_up_to == Position(1, 9, 0)


@pytest.mark.promise("agent.created-again")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_table_created_again_with_its_id_is_emptied_up_to_its_drop(restarted: bool) -> None:
    """As by a truncation there, of the time of the CREATE; whether or not the agent ran all the time."""
    node, schema = begun()
    node.follow(schema, 5, [drop(ORDERS, NOW + 1)])
    assert schema.truncations.pending == []
    if restarted:
        node.tables[:] = []
        schema = node.schema(*schema.unsent)
    node.log.append(6, [create(ORDERS, NOW + 5_000)])
    assert schema.follow(None)
    assert schema.truncations.pending == [Truncation(at(6), ORDERS.id, (NOW + 5_000) // 1000, (5, 1))]
    assert schema.history.tracked() == (ORDERS,)
    assert [str(event) for event in schema.events][-1] == "table shop.orders created"


def test_a_table_that_was_never_published_is_not_emptied() -> None:
    off = replace(ORDERS, cdc=False)
    node, schema = begun([off])
    node.follow(schema, 5, [drop(off, NOW + 1), create(off, NOW + 2)])
    assert schema.truncations.pending == []


def test_a_table_of_the_name_with_another_id_empties_none() -> None:
    node, schema = begun()
    node.follow(schema, 5, [drop(ORDERS, NOW + 1), create(replace(ORDERS, id=UUID(int=9)), NOW + 2)])
    assert schema.truncations.pending == []


def test_of_ids_in_one_mutation_the_created_one_has_the_name_after_a_restart() -> None:
    """As where a node gets the schema of another one after it was down; whichever id is the greater."""
    for table_id in (UUID(int=9), UUID("fbe43760-e57f-11f1-8599-73518cff440e")):
        later = replace(WIDE, id=table_id)
        records = (
            HistoryRecord(at(5), ORDERS.id, ("shop", "orders")),
            HistoryRecord(at(5), later.id, ("shop", "orders"), rows_of(later)),
        )
        values = [(history_key("h", record), encode_history(record)) for record in records]
        assert [record.table_id for record in read_history("h", values)] == [ORDERS.id, table_id]
