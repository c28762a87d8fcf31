"""The schema of a running agent: where it comes from, what is kept of it, and what is said of its changes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from tailrace.capture.ddl import Gap
from tailrace.capture.schema import LiveSchema
from tailrace.history.records import BEGINNING, HistoryRecord
from tailrace.position import Position
from tailrace.testing import Faults, MemoryLog, MemorySchema, MemorySchemaLog, rows_of
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table
from tests.unit.ddl import NOW, alter, create, drop
from tests.unit.tables import table

ORDERS = table({"id": "text"}, {}, {}, {"v": "int"}, keyspace="shop", name="orders")
WIDE = table({"id": "text"}, {}, {}, {"v": "int", "w": "addr"}, keyspace="shop", name="orders")
OFF = replace(WIDE, cdc=False)
OTHER = replace(table({"n": "int"}, keyspace="shop", name="other", table_id=UUID(int=2)))


@dataclass
class Node:
    """A node's tables and log."""

    tables: list[Table] = field(default_factory=lambda: [ORDERS])
    log: MemoryLog = field(default_factory=MemoryLog)

    def schema(self, *known: HistoryRecord, written: int = 0) -> LiveSchema:
        """A fresh agent's schema, begun with what Kafka has."""
        schema = LiveSchema(MemorySchema(self.tables, written=written), MemorySchemaLog(self.log, Faults()))
        schema.learn()
        schema.begin(known, None, 1)
        return schema


def at(segment: int, offset: int = 1) -> Position:
    """A position."""
    return Position(1, segment, offset)


def test_a_new_host_s_first_read_holds_from_the_beginning() -> None:
    """And is to be kept, but for Cassandra's own tables; then the log goes on from it."""
    node = Node([*system_tables(), ORDERS])
    schema = node.schema()
    assert [(one.position, one.table, one.inferred) for one in schema.unsent] == [(BEGINNING, ORDERS, False)]
    node.log.append(5, [alter(ORDERS, WIDE)])
    assert schema.follow(None)
    assert (schema.history.table(ORDERS.id, at(5, 0)), schema.history.table(ORDERS.id, at(5, 2))) == (ORDERS, WIDE)
    assert [one.table for one in schema.unsent] == [ORDERS, WIDE]
    schema.sent()
    assert not schema.follow(None)
    assert schema.unsent == []


def test_a_restart_knows_what_was_committed_and_no_more() -> None:
    """DDL that is committed is not read again; what was not is, and is to be sent; positions answer as before."""
    node = Node()
    schema = node.schema()
    node.log.append(5, [alter(ORDERS, WIDE), alter(WIDE, OFF, NOW + 1)])
    schema.follow(None)
    seed, wide, off = schema.unsent
    node.tables[:] = [OFF]
    for known in ((seed,), (seed, wide), (seed, wide, off)):
        again = node.schema(*known)
        again.follow(None)
        assert [one.position for one in (*known, *again.unsent)] == [BEGINNING, at(5, 1), at(5, 2)]
        for position, expected in ((at(4), ORDERS), (at(5, 1), WIDE), (at(5, 2), OFF), (at(6), OFF)):
            assert again.history.table(ORDERS.id, position) == expected


def test_a_table_dropped_and_made_anew_is_kept_as_two() -> None:
    """Under their ids; after a restart too, nothing of the old one is in the new one."""
    node = Node()
    schema = node.schema()
    again = table({"n": "int"}, keyspace="shop", name="orders", table_id=UUID(int=9))
    node.log.append(5, [drop(ORDERS), create(again, NOW + 1)])
    schema.follow(None)
    known = tuple(schema.unsent)
    assert [(one.table_id, one.table) for one in known[1:]] == [(ORDERS.id, None), (again.id, again)]
    node.tables[:] = [again]
    restarted = node.schema(*known)
    wider = table({"n": "int"}, {}, {}, {"x": "int"}, keyspace="shop", name="orders", table_id=again.id)
    node.log.append(6, [alter(again, wider, NOW + 2)])
    restarted.follow(None)
    assert restarted.history.table(ORDERS.id, at(9)) == ORDERS
    assert restarted.history.table(again.id, at(9)) == wider
    assert restarted.history.tracked() == (wider,)


def test_a_session_that_begins_anew_keeps_what_was_read() -> None:
    """Its segment may be gone: only what Kafka lacks is sent again."""
    node = Node()
    schema = node.schema()
    node.log.append(5, [alter(ORDERS, WIDE)])
    schema.follow(None)
    node.log.segments.clear()
    seed, wide = schema.unsent
    schema.begin((seed,), None, 1)
    assert schema.unsent == [wide]
    schema.begin((seed, wide), at(5), 1)
    assert schema.unsent == []
    assert schema.history.table(ORDERS.id, at(6)) == WIDE


def test_the_cluster_is_ahead_of_the_log() -> None:
    """A table that is read in its later form: the log says from where on it had which."""
    node = Node([])
    schema = node.schema()
    node.tables.append(OFF)
    schema.hint()
    assert schema.learn().added == (OFF,)
    assert not schema.hinted
    node.log.append(5, [create(ORDERS), alter(ORDERS, WIDE, NOW + 1), alter(WIDE, OFF, NOW + 2)])
    schema.follow(None)
    found = [schema.history.table(ORDERS.id, at(5, offset)) for offset in (1, 2, 3)]
    assert found == [ORDERS, WIDE, OFF]
    assert [one.table for one in schema.unsent] == [ORDERS, WIDE, OFF]


def test_an_alteration_of_a_table_that_was_only_read() -> None:
    """Created before the log's oldest segment, after our history began: what was read is the base."""
    node = Node([])
    known = HistoryRecord(BEGINNING, OTHER.id, ("shop", "other"), rows_of(OTHER))
    node.tables += [OTHER, ORDERS]
    schema = node.schema(known)
    node.log.append(5, [alter(ORDERS, WIDE)])
    schema.follow(None)
    assert [schema.history.table(ORDERS.id, at(5, offset)) for offset in (0, 1)] == [ORDERS, WIDE]


def test_ddl_that_cannot_be_decoded_is_passed_over_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """By its position; what follows is applied."""
    node = Node()
    schema = node.schema()
    node.log.append(5, [alter(ORDERS, WIDE)[:-1], alter(ORDERS, OFF, NOW + 1)])
    assert schema.follow(None)
    assert schema.history.table(ORDERS.id, at(6)) == OFF
    assert "DDL at 1/5:1 in CommitLog-7-5.log cannot be read" in caplog.text
    assert "1/5:1" in schema.inferred["system_schema"]


def test_only_tables_of_users_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """A release's own tables differ from the built-in ones, or are not there: nobody changed them."""
    caplog.set_level(logging.INFO, "tailrace.capture")
    altered, _, *others = system_tables()
    node = Node([replace(altered, cdc=not altered.cdc), replace(altered, name="new", id=UUID(int=5)), *others, ORDERS])
    schema = node.schema()
    assert caplog.messages == ["schema: added: shop.orders"]
    node.log.append(5, [alter(ORDERS, WIDE), drop(WIDE, NOW + 1)])
    schema.follow(None)
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
        schema.begin([HistoryRecord(BEGINNING, self.known.id, name, rows_of(self.known, NOW))], at(5), 1)
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
    assert [(one.position, one.table, one.inferred) for one in schema.unsent] == [(at(8, 0), WIDE, False)]
    assert "altered unseen between 1/6:0 and 1/8:0" in schema.inferred["shop.orders"]
    assert not schema.history.unsure


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
        [HistoryRecord(BEGINNING, ORDERS.id, ("shop", "orders"), rows_of(ORDERS, NOW)), *schema.unsent], None, 1
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
    schema.begin([HistoryRecord(BEGINNING, ORDERS.id, ("shop", "orders"), rows_of(ORDERS, NOW))], at(5), 1)
    log.append(8, [alter(WIDE, OFF, NOW + 200)])
    with pytest.raises(ServiceError):
        gap(schema, source, at(6, 0), 8, NOW + 100)
    assert (schema.place, schema.unsent) == (at(5), [])
    assert schema.follow(None)
    assert [one.table for one in schema.unsent] == [WIDE, OFF]
    assert schema.place == Position(1, 9, 0)
