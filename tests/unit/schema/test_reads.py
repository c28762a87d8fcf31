"""What was read of the cluster is later than the log's place: all DDL that the log still has counts over it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.history.records import HistoryRecord
from tailrace.history.rows import KeyedRow
from tailrace.schema.ddl_log import Gap
from tailrace.schema.live import LiveSchema
from tailrace.state import Resume
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tests.support.capture import MemoryLog, entry_at
from tests.support.kafka import Faults
from tests.support.schema import MemorySchema, MemorySchemaLog
from tests.unit.ddl import NOW, alter, create, drop, drop_keyspace, mutation
from tests.unit.mutations import deletion
from tests.unit.schema.node import ORDERS
from tests.unit.tables import table

OFF = replace(ORDERS, cdc=False)
WIDE = table({"id": "text"}, {}, {}, {"v": "int", "w": "int"}, keyspace="shop", name="orders")
TYPED = table({"id": "text"}, {}, {}, {"v": "int", "w": "addr"}, keyspace="shop", name="orders")
OTHER = table({"n": "int"}, keyspace="shop", name="other", table_id=UUID(int=2))
WIDER = table({"n": "int"}, {}, {}, {"q": "int"}, keyspace="shop", name="other", table_id=UUID(int=2))
READ = NOW + 9
A_MINUTE = 60_000_000


def at(segment: int, offset: int) -> Position:
    return Position(1, segment, offset)


class Cluster:
    """A node whose tables were written at `written`, as the cluster says, and its log."""

    def __init__(self, *tables: Table, written: int = READ) -> None:
        self.reader = MemorySchema(list(tables), written=written)
        self.log = MemoryLog()
        self.source = MemorySchemaLog(self.log, Faults())

    def schema(self, known: tuple[HistoryRecord, ...] = (), resume: Resume | None = None) -> LiveSchema:
        """A fresh agent's schema, begun with what Kafka has."""
        self.source = MemorySchemaLog(self.log, Faults())
        schema = LiveSchema(self.reader, self.source)
        schema.learn()
        schema.begin(known, resume or Resume(), 1)
        return schema

    def restarted(self, schema: LiveSchema, read_up_to: Position) -> LiveSchema:
        """Its successor, once it has committed what it has, and read the log so far."""
        return self.schema(tuple(schema.unsent), replace(schema.noted(Resume()), schema=read_up_to))


def published(schema: LiveSchema, *places: Position) -> list[bool]:
    """The cdc flag of the orders at these places."""
    tables = [schema.history.table(ORDERS.id, place) for place in places]
    return [found is not None and found.cdc for found in tables]


@pytest.mark.promise("agent.definition-of-its-place", "agent.schema-events")
@pytest.mark.parametrize("restarted", [False, True])
def test_the_log_counts_over_a_new_host_s_first_read(restarted: bool) -> None:
    """Also behind a restart before the log's first DDL, though the DDL is older than what was read."""
    cluster = Cluster(ORDERS, OTHER)
    schema = cluster.schema()
    if restarted:
        schema = cluster.restarted(schema, at(4, 9))
    cluster.log.append(5, [alter(ORDERS, OFF, NOW + 5), create(OTHER, NOW + 6), alter(OFF, ORDERS, READ)])
    schema.follow(None)
    assert published(schema, at(5, 0), at(5, 1), at(5, 3)) == [True, False, True]
    assert [str(event) for event in schema.events] == [
        "table shop.orders altered: cdc off",
        "table shop.other created",
        "table shop.orders altered: cdc on",
    ]


@pytest.mark.promise("agent.unread-ddl")
@pytest.mark.parametrize("restarted", [False, True])
def test_ddl_in_a_hole_of_what_a_new_host_finds(restarted: bool) -> None:
    """The first read had it already, and the log is older up to the hole: it holds from there on all the same."""
    cluster = Cluster(ORDERS)
    schema = cluster.schema()
    cluster.log.append(1, [alter(ORDERS, OFF, NOW + 5)])
    schema.follow(None)
    if restarted:
        schema = cluster.restarted(schema, at(2, 0))
    cluster.source.gaps.append(Gap(at(2, 0), at(3, 0), NOW + 11))
    schema.follow(None)
    assert published(schema, at(1, 0), at(1, 1), at(2, 9), at(3, 1)) == [True, False, False, True]


def with_a_hole(cluster: Cluster, schema: LiveSchema, written: int) -> None:
    """Segment 2 was gone unread, and segment 3 goes on at a time."""
    cluster.source.gaps.append(Gap(at(2, 0), at(3, 0), written))
    schema.follow(None)


@pytest.mark.promise("agent.unread-ddl", "agent.schema-events")
@pytest.mark.parametrize("dropped", [False, True], ids=["new", "again"])
def test_a_table_that_was_created_in_a_hole(dropped: bool) -> None:
    """Its definition holds from there on, is told of, and is what a successor has for what stands before later DDL."""
    cluster = Cluster(ORDERS, OTHER) if dropped else Cluster(OTHER)
    schema = cluster.schema()
    cluster.log.append(1, [alter(OTHER, WIDER, READ + 1), *([drop(ORDERS, READ + 2)] if dropped else [])])
    cluster.reader.tables[:], cluster.reader.written = [WIDE, OTHER], READ + 5
    with_a_hole(cluster, schema, READ + 7)
    off = replace(WIDE, cdc=False)
    cluster.log.append(3, [alter(WIDE, off, READ + 9)])
    schema.follow(None)
    events = [str(event) for event in schema.events if event.name == "orders"]
    assert events[int(dropped) :] == ["table shop.orders created", "table shop.orders altered: cdc off"]
    cluster.reader.tables[:] = [off, OTHER]
    for each in (schema, cluster.restarted(schema, at(3, 1))):
        assert [each.history.table(ORDERS.id, place) for place in (at(3, 0), at(3, 1))] == [WIDE, off]
        assert not each.history.inferred(ORDERS.id, at(3, 1))


@pytest.mark.promise("agent.unread-ddl")
@pytest.mark.parametrize("restarted", [False, True])
def test_a_table_that_may_have_been_created_in_a_hole(restarted: bool) -> None:
    """It was altered later: what was read is kept and marked up to that DDL."""
    cluster = Cluster(OTHER)
    schema = cluster.schema()
    cluster.reader.tables[:], cluster.reader.written = [OFF, OTHER], READ + 9
    with_a_hole(cluster, schema, READ + 7)
    assert schema.history.table(ORDERS.id, at(3, 0)) == OFF
    if restarted:
        cluster.reader.tables[:], cluster.reader.written = [WIDE, OTHER], READ + 99
        schema = cluster.restarted(schema, at(3, 0))
    cluster.log.append(3, [alter(ORDERS, OFF, READ + 9)])
    schema.follow(None)
    assert [schema.history.table(ORDERS.id, place) for place in (at(3, 0), at(3, 1))] == [OFF, OFF]
    assert [schema.history.inferred(ORDERS.id, at(3, offset)) for offset in (0, 1)] == [True, restarted]


@pytest.mark.promise("agent.unread-ddl")
def test_a_table_that_was_dropped_behind_a_hole() -> None:
    """It may have been altered in the hole, and the cluster does not tell any more: marked up to its DROP."""
    cluster = Cluster(ORDERS, OTHER)
    schema = cluster.schema()
    cluster.reader.tables[:] = [OTHER]
    with_a_hole(cluster, schema, READ + 7)
    cluster.log.append(3, [drop(ORDERS, READ + 9), create(ORDERS, READ + 10)])
    schema.follow(None)
    places = (at(1, 0), at(3, 0), at(3, 1))
    assert [schema.history.inferred(ORDERS.id, place) for place in places] == [False, True, True]
    assert not schema.history.inferred(ORDERS.id, at(3, 2))
    assert not schema.history.inferred(OTHER.id, at(3, 0))


def inferring(cluster: Cluster) -> LiveSchema:
    """An agent that has met a write with a column that no DDL told of, and took the cluster's word for it."""
    schema = cluster.schema()
    cluster.reader.tables[:], cluster.reader.written = [WIDE, OTHER], READ
    schema.learn()
    entry = entry_at(at(1, 5), deletion(WIDE, b"k"), 7)
    schema.adopt(schema.as_read(entry), entry)
    assert schema.history.inferred(ORDERS.id, at(1, 6))
    return schema


@pytest.mark.parametrize("restarted", [False, True])
def test_another_table_s_ddl_does_not_make_a_read_the_log_s_word(restarted: bool) -> None:
    """Nor does the table's own that is older: each counts, is told, and the last one is sure."""
    cluster = Cluster(ORDERS, OTHER, written=NOW)
    schema = inferring(cluster)
    if restarted:
        schema = cluster.restarted(schema, at(1, 9))
    cluster.log.append(
        2, [alter(OTHER, WIDER, NOW + 3), alter(WIDE, replace(WIDE, cdc=False), NOW + 5), alter(OFF, WIDE, READ)]
    )
    schema.follow(None)
    assert published(schema, at(2, 1), at(2, 2), at(2, 3)) == [True, False, True]
    assert [schema.history.inferred(ORDERS.id, at(2, offset)) for offset in (1, 2, 3)] == [True, True, False]
    assert [str(event) for event in schema.events if event.position.segment == 2] == [
        "table shop.other altered: column q int added",
        "table shop.orders altered: cdc off",
        "table shop.orders altered: cdc on",
    ]


@pytest.mark.promise("agent.definition-of-its-place", "agent.schema-events")
@pytest.mark.parametrize("ddl", ["before the log", "in the log"])
def test_what_a_stale_node_sends_to_a_new_host_changes_nothing(ddl: str) -> None:
    """It was away when the table got its flag and its type a field; Cassandra takes the later writes, and so do we."""
    cluster = Cluster(TYPED, OTHER)
    schema = cluster.schema()
    cluster.source.began = READ + 2 * A_MINUTE if ddl == "before the log" else NOW
    first, second = TYPED.regular
    shorter = replace(second.type, fields=second.type.fields[:2], args=second.type.args[:2])
    stale = replace(TYPED, regular=(first, replace(second, type=shorter)), cdc=False)
    if ddl == "in the log":
        cluster.log.append(5, [alter(stale, TYPED, READ)])
        schema.follow(None)
    told = list(schema.events)
    cluster.log.append(6, [create(stale, NOW)])
    schema.follow(None)
    assert schema.history.table(ORDERS.id, at(6, 1)) == TYPED
    assert schema.events == told


def test_ddl_that_was_lost_is_not_waited_for_for_ever() -> None:
    """Where the log has come to other DDL that is much later, what was read is the log's word."""
    cluster = Cluster(ORDERS, OTHER, written=NOW)
    schema = inferring(cluster)
    cluster.log.append(2, [alter(OTHER, WIDER, READ + A_MINUTE), alter(WIDER, OTHER, READ + A_MINUTE + 1)])
    schema.follow(None)
    assert [schema.history.inferred(ORDERS.id, at(2, offset)) for offset in (1, 2)] == [True, False]


def test_a_key_column_that_was_renamed_again_after_the_log_s_place() -> None:
    """The read has its last name, and the log the one before: at each place there is one column."""
    first, second, last = (
        table({"id": "text"}, {name: "int"}, {}, {"v": "int"}, keyspace="shop", name="orders") for name in "abc"
    )
    cluster = Cluster(last)
    schema = cluster.schema()
    cluster.log.append(5, [alter(first, second, NOW + 5), alter(second, last, READ)])
    schema.follow(None)
    assert [schema.history.table(last.id, at(5, offset)) for offset in (0, 1, 2)] == [last, second, last]


@pytest.mark.promise("agent.created-again", "agent.schema-events")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("dropped", ["table", "keyspace"])
def test_an_earlier_table_of_the_name_is_another_one(dropped: str, restarted: bool) -> None:
    """The log has its last DDL, and not its CREATE: the table that was read is neither altered, dropped nor emptied."""
    earlier = table({"n": "int"}, {}, {}, {"q": "int"}, keyspace="shop", name="orders", table_id=UUID(int=9))
    cluster = Cluster(ORDERS)
    schema = cluster.schema()
    if restarted:
        schema = cluster.restarted(schema, at(4, 9))
    gone = drop(earlier, NOW + 2) if dropped == "table" else drop_keyspace("shop", NOW + 2)
    cluster.log.append(5, [alter(replace(earlier, cdc=False), earlier, NOW + 1), gone, create(ORDERS, READ)])
    schema.follow(None)
    assert [str(event) for event in schema.events] == ["table shop.orders created"]
    assert schema.truncations.pending == []
    assert published(schema, at(5, 0), at(5, 1), at(5, 2), at(5, 3)) == [True] * 4
    assert schema.history.tracked() == (ORDERS,)


@pytest.mark.promise("agent.unread-ddl")
@pytest.mark.parametrize("known", ["read", "logged"])
def test_a_table_that_was_replaced_in_a_hole_and_altered_behind_it(known: str) -> None:
    """Its DROP and the next one's CREATE were lost, and the cluster was read behind the ALTER: nothing is mixed up."""
    former = table({"id": "int"}, {}, {}, {"v": "int"}, keyspace="shop", name="orders", table_id=UUID(int=9))
    cluster = Cluster(former, written=NOW) if known == "read" else Cluster()
    schema = cluster.schema()
    if known == "logged":
        cluster.log.append(1, [create(former, NOW)])
        schema.follow(None)
    cluster.reader.tables[:], cluster.reader.written = [WIDE], READ
    with_a_hole(cluster, schema, READ - 1)
    cluster.log.append(3, [alter(ORDERS, WIDE, READ)])
    schema.follow(None)
    assert [schema.history.table(ORDERS.id, at(3, offset)) for offset in (0, 1)] == [WIDE, WIDE]
    assert schema.history.tracked() == (WIDE,)
    wider = table({"id": "text"}, {}, {}, {"v": "int", "w": "int", "x": "int"}, keyspace="shop", name="orders")
    cluster.log.append(4, [alter(WIDE, wider, READ + 9)])
    schema.follow(None)
    assert schema.history.table(ORDERS.id, at(4, 1)) == wider


@pytest.mark.promise("agent.definition-of-its-place")
def test_a_keyspace_s_drop_takes_no_type_that_was_read_since() -> None:
    """It was created in a hole. The log goes on with another type, and with the table that has it."""
    cluster = Cluster(TYPED, written=NOW)
    schema = cluster.schema()
    cluster.log.append(1, [drop_keyspace("shop", NOW + 1)])
    schema.follow(None)
    cluster.reader.written = READ
    with_a_hole(cluster, schema, READ + 7)
    off = replace(TYPED, cdc=False)
    fields = {"field_names": ["f"], "field_types": ["int"]}
    other_type = KeyedRow("types", {"keyspace_name": "shop", "type_name": "other", **fields})
    cluster.log.append(3, [mutation("shop", [other_type], written=READ + 8), alter(TYPED, off, READ + 9)])
    schema.follow(None)
    assert published(schema, at(3, 0), at(3, 1), at(3, 2)) == [True, True, False]
