"""The schema of a running agent: where it comes from, what is kept of it, and what is said of its changes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from tailrace.capture.schema import LiveSchema
from tailrace.history.records import BEGINNING, HistoryRecord
from tailrace.position import Position
from tailrace.testing import Faults, MemoryLog, MemorySchema, MemorySchemaLog, rows_of
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
